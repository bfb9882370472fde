//! Suggestions of the nearest valid name for a wrong one.

use std::path::Path;

/// Returns the candidate most similar to `word`, if it is similar enough to be the intended one.
///
/// Case and `-`/`_` do not count as differences; at most a third of the letters may differ.
pub fn nearest_candidate<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let fold = |s: &str| s.to_lowercase().replace('-', "_");
    let wanted = fold(word);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| {
            let letters = wanted.chars().count().max(candidate.chars().count());
            *distance <= (letters / 3).max(1) && *distance < letters
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns "did you mean `jobs/day.toml`?" for a path that does not exist; `None` if no entry beside it has a
/// similar name. If the parent folder does not exist either, the hint is for the folder.
pub fn nearest_path_hint(path: &str) -> Option<String> {
    let path = Path::new(path);
    let name = path.file_name()?.to_str()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(parent.unwrap_or(Path::new("."))) else {
        return nearest_path_hint(parent?.to_str()?);
    };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let nearest = nearest_candidate(name, names.iter().map(String::as_str))?;
    let whole = match parent {
        Some(parent) => parent.join(nearest).display().to_string(),
        None => nearest.to_owned(),
    };
    Some(format!("did you mean `{whole}`?"))
}

/// Returns the message "unknown `kind` …; did you mean …?", followed by the valid choices.
pub fn unknown_name_message(kind: &str, word: &str, candidates: &[&str]) -> String {
    let meant = match nearest_candidate(word, candidates.iter().copied()) {
        Some(candidate) => format!("; did you mean `{candidate}`?"),
        None => String::new(),
    };
    if candidates.is_empty() {
        return format!("unknown {kind} `{word}`");
    }
    format!("unknown {kind} `{word}`{meant}\n{kind}s: {}", format_name_list(candidates))
}

/// Joins names with commas, at most the first forty.
pub fn format_name_list(names: &[&str]) -> String {
    let mut listed = names.iter().take(40).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 40 {
        listed.push_str(&format!(", and {} more", names.len() - 40));
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::nearest_candidate;

    #[test]
    fn nearest_candidate_ignores_case_dashes_and_typos() {
        let names = ["user_id", "day", "state"];
        for (word, expected) in [
            ("usr_id", Some("user_id")),
            ("User-ID", Some("user_id")),
            ("sate", Some("state")),
            ("dya", Some("day")),
            ("zebra", None),
            ("x", None),
        ] {
            assert_eq!(nearest_candidate(word, names), expected, "{word}");
        }
    }
}
