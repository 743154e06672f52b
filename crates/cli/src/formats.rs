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
                let found = of_database(url.reveal()).await?;
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

/// Returns the format if this program supports it.
fn compatible(found: i64, lowest: i64, supported: i64) -> Result<Option<i64>, StoreError> {
    if lowest > supported {
        return Err(StoreError::Incompatible { found, supported });
    }
    Ok(Some(found))
}

async fn of_database(url: &str) -> Result<Option<i64>, StoreError> {
    let unavailable = |error: tokio_postgres::Error| {
        let said = error.as_db_error().map(|said| said.message().to_owned());
        StoreError::Unavailable(said.unwrap_or_else(|| error.to_string()).into())
    };
    let (client, options) = windlass_store_postgres::connect(url).await?;
    let schema = &options.schema;
    let is_there = format!("SELECT to_regclass('\"{schema}\".meta') IS NOT NULL");
    let row = client.query_typed_one(&is_there, &[]).await.map_err(unavailable)?;
    if !row.try_get::<_, bool>(0).map_err(unavailable)? {
        return Ok(None);
    }
    let text = format!("SELECT format, lowest FROM \"{schema}\".meta");
    let row = client.query_typed_one(&text, &[]).await.map_err(unavailable)?;
    let (found, lowest) = (row.try_get(0), row.try_get(1));
    let (found, lowest) = (found.map_err(unavailable)?, lowest.map_err(unavailable)?);
    compatible(found, lowest, windlass_store_postgres::FORMAT)
}
