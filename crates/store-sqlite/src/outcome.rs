//! Resolves a commit with unknown outcome: closes the connection, reopens the file, and looks.

use rusqlite::{Connection, ErrorCode, OptionalExtension, Result, TransactionBehavior};
use windlass_store::{CommitId, StoreError};

use crate::error::SqliteError;
use crate::load::number;
use crate::open;
use crate::writer::{Writer, checkpoint};

impl Writer {
    /// Determines the outcome of the last batch after its COMMIT failed. COMMIT is not retried.
    pub(crate) fn settle_commit(&mut self, error: SqliteError) -> Result<(), SqliteError> {
        let batch = self.batch;
        if error.is(ErrorCode::DiskFull) || error.is(ErrorCode::DatabaseBusy) {
            // Both are reported before the commit is complete in the WAL, so this connection sees
            // what every other connection sees.
            self.roll_back();
            match self.conn.as_ref().map(|conn| last_batch(conn, &self.id)) {
                Some(Ok(seen)) if seen == batch => {
                    self.count_commit();
                    return Ok(());
                }
                Some(Ok(_)) => return Err(error),
                Some(Err(_)) | None => {}
            }
        }
        self.conn = None;
        self.unresolved = Some(batch);
        match self.ensure_open() {
            Err(_) => Err(StoreError::OutcomeUnknown(CommitId::new(batch)).into()),
            Ok(()) if self.lost.contains(&batch) => Err(error.into_error(&self.path).into()),
            Ok(()) => Ok(()),
        }
    }

    /// Whether the batch of a commit id was committed.
    pub(crate) fn outcome(&mut self, commit_id: &CommitId) -> Result<bool, SqliteError> {
        self.ensure_open()?;
        let seen = last_batch(self.conn(), &self.id)?;
        Ok(seen >= commit_id.number && !self.lost.contains(&commit_id.number))
    }

    /// Reopens the file if the connection was closed, and resolves an unknown outcome.
    pub(crate) fn ensure_open(&mut self) -> Result<(), SqliteError> {
        if self.conn.is_some() {
            return Ok(());
        }
        self.hit("sqlite.reopen")?;
        let mut conn = open::reopen(&self.path, &self.options)?;
        if let Some(batch) = self.unresolved {
            if self.fence(&mut conn)? >= batch {
                self.count_commit();
            } else {
                self.lost.insert(batch);
            }
            self.unresolved = None;
        }
        self.conn = Some(conn);
        self.file = open::identity(&self.path);
        self.data_version = None;
        Ok(self.notice_others()?)
    }

    /// Reads the last committed batch, and makes sure that the result is final.
    ///
    /// A failed commit may have left all of its frames behind the end of the WAL, where crash
    /// recovery would find them. Synced frames of another commit in their place rule that out; a
    /// batch that was committed becomes durable with them.
    fn fence(&self, conn: &mut Connection) -> Result<u64> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let seen = last_batch(&tx, &self.id)?;
        let fence = "INSERT INTO writer (id, batch, at, reopened) VALUES (?, ?, ?, 1) \
            ON CONFLICT (id) DO UPDATE SET reopened = reopened + 1";
        tx.execute(fence, (&self.id, number(seen), self.options.clock.now().micros()))?;
        tx.commit()?;
        checkpoint(conn);
        Ok(seen)
    }
}

/// The last batch of this handle in the database; zero if none.
fn last_batch(conn: &Connection, id: &str) -> Result<u64> {
    let mut stmt = conn.prepare_cached("SELECT batch FROM writer WHERE id = ?")?;
    let batch: Option<i64> = stmt.query_row([id], |row| row.get(0)).optional()?;
    Ok(batch.map_or(0, i64::cast_unsigned))
}
