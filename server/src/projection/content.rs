//! Values in views: small ones travel as they are, large ones as references to content that is stored before they are sent.

use piw_protocol::canonical::{self, INLINE_DEPTH};
use piw_protocol::child::ContentRef;
use piw_protocol::view::{ARTIFACT_THRESHOLD, ArtifactRef, ViewValue};
use piw_state::query::content::{self as stored, JSON, TEXT};
use piw_state::query::{QueryError, Reader, StoredValue};
use piw_state::{RunKey, State, StateError, ViewContent, ViewContentSource};
use serde_json::Value;

/// Collects the content that one view names.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    named: Vec<ViewContent>,
}

impl Contents {
    /// The wire form of a stored value; an absent one is `null`.
    pub(crate) fn stored(&mut self, value: Option<StoredValue>) -> ViewValue {
        match value {
            None => ViewValue::Inline(Value::Null),
            // What is stored inline is below the threshold already.
            Some(StoredValue::Inline(value)) if canonical::depth(&value) <= INLINE_DEPTH => ViewValue::Inline(value),
            Some(StoredValue::Inline(value)) => self.value(value),
            Some(StoredValue::Content { blob, reference }) => {
                let artifact = ArtifactRef::from(&reference);
                self.name(reference, ViewContentSource::Blob(blob));
                ViewValue::Artifact(artifact)
            }
        }
    }

    /// The wire form of a value: a reference when it is large or deeply nested.
    pub(crate) fn value(&mut self, value: Value) -> ViewValue {
        let bytes = canonical::write_value(&value);
        if bytes.len() <= ARTIFACT_THRESHOLD && canonical::depth(&value) <= INLINE_DEPTH {
            return ViewValue::Inline(value);
        }
        ViewValue::Artifact(self.generated(bytes, JSON))
    }

    /// A reference to a text.
    pub(crate) fn text(&mut self, text: &str) -> ArtifactRef {
        self.generated(text.as_bytes().to_vec(), TEXT)
    }

    /// A reference to content that is stored in `blobs`.
    pub(crate) fn blob(&mut self, blob: i64, reference: ContentRef) -> ArtifactRef {
        let artifact = ArtifactRef::from(&reference);
        self.name(reference, ViewContentSource::Blob(blob));
        artifact
    }

    /// A reference to a value, whatever its size.
    pub(crate) fn json(&mut self, value: &Value) -> ArtifactRef {
        self.generated(canonical::write_value(value), JSON)
    }

    fn generated(&mut self, bytes: Vec<u8>, media_type: &str) -> ArtifactRef {
        let reference = ContentRef {
            sha256: canonical::sha256_hex(&bytes),
            bytes: bytes.len() as u64,
            media_type: media_type.to_owned(),
        };
        let artifact = ArtifactRef::from(&reference);
        self.name(reference, ViewContentSource::Generated(bytes));
        artifact
    }

    fn name(&mut self, reference: ContentRef, source: ViewContentSource) {
        if !self.named.iter().any(|known| known.reference == reference) {
            self.named.push(ViewContent { reference, source });
        }
    }

    /// Everything that the view names, and what of it is not stored under the run yet.
    pub(crate) fn finish(self, reader: &Reader, run: i64) -> Result<NamedContent, QueryError> {
        let mut named = NamedContent {
            run,
            ..NamedContent::default()
        };
        for content in self.named {
            named.all.push(content.reference.clone());
            if !stored::is_stored(reader, run, &content.reference)? {
                named.missing.push(content);
            }
        }
        Ok(named)
    }
}

/// The content that a finished view names.
#[derive(Debug, Default)]
pub(crate) struct NamedContent {
    /// `runs.id`.
    run: i64,
    all: Vec<ContentRef>,
    missing: Vec<ViewContent>,
}

impl NamedContent {
    /// Whether nothing has to be stored before the view is sent.
    pub(crate) fn is_stored(&self) -> bool {
        self.missing.is_empty()
    }

    /// Stores what is missing; a view must not be sent before this resolved.
    pub(crate) async fn store(self, state: &State) -> Result<(), StateError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        state.store_view_content(RunKey(self.run), self.missing, self.all).await
    }
}

/// Digest and media type that an artifact path names.
pub(crate) fn parse_path(path: &str) -> Option<(&str, &'static str)> {
    let name = path.strip_prefix("artifacts/sha256/")?;
    let (digest, extension) = name.split_once('.')?;
    let is_digest = digest.len() == 64
        && digest
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let media_type = match extension {
        "json" => JSON,
        "txt" => TEXT,
        _ => return None,
    };
    is_digest.then_some((digest, media_type))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_of_the_threshold_travels_inline_and_one_byte_more_does_not() {
        let mut contents = Contents::default();
        let fits = Value::String("x".repeat(ARTIFACT_THRESHOLD - 2));
        assert_eq!(contents.value(fits.clone()), ViewValue::Inline(fits));
        let large = Value::String("x".repeat(ARTIFACT_THRESHOLD - 1));
        let ViewValue::Artifact(reference) = contents.value(large.clone()) else {
            panic!("it is above the threshold")
        };
        assert_eq!(reference.bytes, ARTIFACT_THRESHOLD as u64 + 1);
        assert_eq!(contents.value(large), ViewValue::Artifact(reference.clone()));
        assert_eq!(contents.named.len(), 1, "the same content is stored once");
        assert_eq!(parse_path(&reference.path), Some((reference.sha256.as_str(), JSON)));
    }

    #[test]
    fn a_deep_value_travels_as_content() {
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        assert!(matches!(Contents::default().value(deep), ViewValue::Artifact(_)));
    }

    #[test]
    fn a_user_object_that_looks_like_a_reference_is_escaped() {
        let lookalike = json!({"$artifact": {"path": "x"}});
        let wire = Contents::default().value(lookalike.clone()).to_wire();
        assert_eq!(wire, json!({"$escaped": lookalike}));
        assert_eq!(ViewValue::from_wire(&wire), ViewValue::Inline(lookalike));
    }

    #[test]
    fn only_exact_artifact_paths_are_read() {
        let digest = "0123456789abcdef".repeat(4);
        assert!(parse_path(&format!("artifacts/sha256/{digest}.txt")).is_some());
        for path in [
            format!("artifacts/sha256/{}.txt", digest.to_uppercase()),
            format!("artifacts/sha256/{digest}.exe"),
            format!("artifacts/sha256/../{digest}.json"),
            format!("artifacts/sha256/{digest}"),
            format!("/artifacts/sha256/{digest}.json"),
            String::new(),
        ] {
            assert_eq!(parse_path(&path), None, "{path}");
        }
    }
}
