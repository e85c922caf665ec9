//! The one normaliser: what it lets through is normal, and stays what it is.

use weir::engine::policy::path::{EncodedSlashes, Fold, PathRules, Slashes, normalise};

const NONE: PathRules = PathRules {
    slashes: Slashes::Merge,
    encoded_slashes: EncodedSlashes::Refuse,
    fold: Fold { case: false, trailing_slash: false, params: false },
};
const KEPT: PathRules = PathRules { slashes: Slashes::Keep, ..NONE };
const ENCODED: PathRules = PathRules { encoded_slashes: EncodedSlashes::Keep, ..NONE };
const FOLDED: PathRules = PathRules { fold: Fold { case: true, trailing_slash: true, params: true }, ..NONE };

pub fn run(bytes: &[u8]) {
    let Ok(raw) = std::str::from_utf8(bytes) else { return };
    let kept = KEPT.normalise(raw);
    assert_eq!(kept.is_ok(), normalise(raw).is_ok(), "{raw:?}");
    if let Ok(kept) = kept {
        assert_eq!(KEPT.normalise(&kept).as_ref(), Ok(&kept), "of {raw:?}");
        assert!(kept.split('/').all(|segment| segment != "." && segment != ".."), "{kept:?} of {raw:?}");
    }
    let encoded = ENCODED.normalise(raw);
    if let Ok(encoded) = &encoded {
        assert_eq!(ENCODED.normalise(encoded).as_ref(), Ok(encoded), "of {raw:?}");
        let decoded = encoded.replace("%2F", "/");
        for segment in decoded.split('/') {
            let name = segment.split(';').next().unwrap_or_default();
            assert!(name != "." && name != "..", "{encoded:?} of {raw:?}");
        }
    }
    let Ok(path) = normalise(raw) else { return };
    assert_eq!(encoded.as_deref(), Ok(&*path), "of {raw:?}");
    assert_eq!(normalise(&path).expect("normal").as_ref(), path.as_ref(), "of {raw:?}");
    assert!(path.starts_with('/') || *path == *"*", "{path:?} of {raw:?}");
    for segment in path.split('/') {
        assert!(segment != "." && segment != "..", "{path:?} of {raw:?}");
    }
    assert!(!path.contains("//") && !path.contains('\\'), "{path:?} of {raw:?}");
    let folded = FOLDED.fold(&path);
    assert!(folded.starts_with('/') || *folded == *"*", "{folded:?} of {raw:?}");
    assert_eq!(FOLDED.fold(&folded), folded, "of {raw:?}");
    let lower = path.to_ascii_lowercase();
    for hidden in ["%2f", "%5c", "%00", "%2e", "%0a", "%0d"] {
        assert!(!lower.contains(hidden), "{path:?} of {raw:?}");
    }
}
