//! The schema of `state.sqlite`: the DDL, its digest, and the exact shape a file must have.
//!
//! The schema changes in place while the product is alpha: there is no migration and no reader of another shape. A file of
//! any other shape is refused before anything is written to it.

use rusqlite::Connection;

use crate::hash::sha256_hex;

/// The whole DDL.
pub const DDL: &str = include_str!("schema.sql");
/// `PRAGMA application_id` of a state database ("PIWF").
pub const APPLICATION_ID: i32 = 0x5049_5746;
/// `PRAGMA user_version`, and `schema_meta.version`.
pub const VERSION: i32 = 1;
/// `schema_meta.name`.
pub const NAME: &str = "pi-workflows-state";

/// Lower-case hex SHA-256 of [`DDL`].
#[must_use]
pub fn digest() -> String {
    sha256_hex(DDL.as_bytes())
}

/// One object of a schema as SQLite stores it: kind, name and the statement that made it.
pub(crate) type Object = (String, String, String);

/// Every object of the main database, sorted by kind and name.
pub(crate) fn shape(connection: &Connection) -> rusqlite::Result<Vec<Object>> {
    let mut statement =
        connection.prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' ORDER BY type, name")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// The shape that [`DDL`] gives.
pub(crate) fn expected_shape() -> rusqlite::Result<Vec<Object>> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(DDL)?;
    shape(&connection)
}

/// Names the first object in which two shapes differ.
pub(crate) fn first_difference(found: &[Object], expected: &[Object]) -> Option<String> {
    for wanted in expected {
        match found.iter().find(|have| have.0 == wanted.0 && have.1 == wanted.1) {
            None => return Some(format!("{} {} is missing", wanted.0, wanted.1)),
            Some(have) if have.2 != wanted.2 => {
                return Some(format!("{} {} is declared differently", wanted.0, wanted.1));
            }
            Some(_) => {}
        }
    }
    found
        .iter()
        .find(|have| !expected.iter().any(|wanted| have.0 == wanted.0 && have.1 == wanted.1))
        .map(|have| format!("{} {} is not part of the schema", have.0, have.1))
}

/// Creates every object and the identifying values in one transaction.
pub(crate) fn create(connection: &mut Connection, now_ms: i64) -> rusqlite::Result<()> {
    // Free pages can be given back a few at a time: a whole `VACUUM` would keep everybody from writing. Only an empty file
    // takes this setting.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(DDL)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.execute(
        "INSERT INTO schema_meta (id, name, version, ddl_sha256, created_at) VALUES (1, ?1, ?2, ?3, ?4)",
        (NAME, VERSION, digest(), now_ms),
    )?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddl_builds_strict_tables_only() {
        let connection = Connection::open_in_memory().expect("memory database");
        connection.execute_batch(DDL).expect("the DDL is valid");
        let loose: Vec<String> = connection
            .prepare(
                "SELECT name FROM pragma_table_list WHERE schema = 'main' AND strict = 0 AND name NOT LIKE 'sqlite_%'",
            )
            .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
            .expect("table list");
        assert_eq!(loose, Vec::<String>::new());
    }

    #[test]
    fn differences_are_named() {
        let expected = expected_shape().expect("shape");
        assert_eq!(first_difference(&expected, &expected), None);
        let missing: Vec<_> = expected.iter().filter(|object| object.1 != "leases").cloned().collect();
        assert_eq!(
            first_difference(&missing, &expected).as_deref(),
            Some("table leases is missing")
        );
        assert_eq!(
            first_difference(&expected, &missing).as_deref(),
            Some("table leases is not part of the schema")
        );
    }
}
