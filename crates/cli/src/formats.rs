use windlass::StoreUrl;
use windlass_store::StoreError;
use windlass_store_sqlite::SqliteStore;

/// The format of the existing tables, and the format of this program.
#[derive(Debug)]
pub(crate) struct Formats {
    pub(crate) found: Option<i64>,
    pub(crate) ours: i64,
}

impl Formats {
    /// Reads the format of a store and creates nothing.
    pub(crate) async fn of(store: &StoreUrl) -> Result<Self, StoreError> {
        let formats = match store {
            StoreUrl::Sqlite(path) => {
                Self { found: SqliteStore::format(path)?, ours: windlass_store_sqlite::FORMAT }
            }
            StoreUrl::Postgres(url) => {
                let found = of_database(url.expose_secret()).await?;
                Self { found, ours: windlass_store_postgres::FORMAT }
            }
            StoreUrl::Memory => Self { found: Some(0), ours: 0 },
        };
        Ok(formats)
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.found.is_none_or(|found| found < self.ours)
    }
}

async fn of_database(url: &str) -> Result<Option<i64>, StoreError> {
    let (client, options) = windlass_store_postgres::connect(url).await?;
    windlass_store_postgres::read_format(&client, &options.schema).await
}
