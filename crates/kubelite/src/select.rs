//! Label and field selectors: what a list or a watch shows of a kind.

use serde_json::Value;

use crate::names::{label_value_faults, qualified_name_faults};
use crate::status::Refusal;

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    /// Also true where the label is absent.
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Above(String, i64),
    Below(String, i64),
}

impl Requirement {
    fn admits(&self, labels: &Value) -> bool {
        let value = |key: &str| labels[key].as_str();
        let number = |key: &str| value(key).and_then(|text| text.parse::<i64>().ok());
        match self {
            Self::In(key, values) => value(key).is_some_and(|it| values.iter().any(|v| v == it)),
            Self::NotIn(key, values) => value(key).is_none_or(|it| values.iter().all(|v| v != it)),
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
            Self::Above(key, limit) => number(key).is_some_and(|it| it > *limit),
            Self::Below(key, limit) => number(key).is_some_and(|it| it < *limit),
        }
    }
}

/// A parsed `labelSelector`; the empty one admits everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        let tokens = tokens(text);
        let mut parser = Parser { tokens: &tokens, at: 0 };
        parser.selector().map(Self).map_err(Refusal::BadRequest)
    }

    pub(crate) fn admits(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|requirement| requirement.admits(labels))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Cuts a selector into words and the signs `( ) , ! = == != > <`.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !c.is_whitespace() && !"(),!=<>".contains(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        if matches!(c, '=' | '!') && chars.peek() == Some(&'=') {
            chars.next();
            tokens.push(format!("{c}="));
        } else if !c.is_whitespace() {
            tokens.push(c.into());
        }
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

struct Parser<'a> {
    tokens: &'a [String],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        while self.at < self.tokens.len() {
            requirements.push(self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next().as_str() {
                "" => {}
                "," if self.at < self.tokens.len() => {}
                "," => return Err("found '', expected: identifier after ','".into()),
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == "!" {
            self.next();
            return Ok(Requirement::Absent(self.key()?));
        }
        let key = self.key()?;
        match self.peek() {
            "" | "," => Ok(Requirement::Exists(key)),
            "=" | "==" => self.value().map(|value| Requirement::In(key, vec![value])),
            "!=" => self.value().map(|value| Requirement::NotIn(key, vec![value])),
            ">" => self.number().map(|limit| Requirement::Above(key, limit)),
            "<" => self.number().map(|limit| Requirement::Below(key, limit)),
            "in" => self.values().map(|values| Requirement::In(key, values)),
            "notin" => self.values().map(|values| Requirement::NotIn(key, values)),
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn key(&mut self) -> Result<String, String> {
        let key = self.next();
        if key.is_empty() || is_sign(&key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        match qualified_name_faults(&key).first() {
            Some(fault) => Err(format!("<nil>: Invalid value: \"{key}\": {fault}")),
            None => Ok(key),
        }
    }

    /// The value after an equality sign; it may be empty.
    fn value(&mut self) -> Result<String, String> {
        self.next();
        if matches!(self.peek(), "" | ",") { Ok(String::new()) } else { self.word() }
    }

    fn word(&mut self) -> Result<String, String> {
        let value = self.next();
        if is_sign(&value) {
            return Err(format!("found '{value}', expected: identifier"));
        }
        match label_value_faults(&value).first() {
            Some(fault) => Err(format!("values[0]: Invalid value: \"{value}\": {fault}")),
            None => Ok(value),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| "for 'Gt', 'Lt' operators, the value must be an integer".to_owned())
    }

    /// The list after `in` and `notin`.
    fn values(&mut self) -> Result<Vec<String>, String> {
        self.next();
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = Vec::new();
        loop {
            values.push(if matches!(self.peek(), "," | ")") { String::new() } else { self.word()? });
            match self.next().as_str() {
                "," => {}
                ")" => return Ok(values),
                other => return Err(format!("found '{other}', expected: ',' or ')'")),
            }
        }
    }
}

fn is_sign(token: &str) -> bool {
    token.starts_with(|c| "(),!=<>".contains(c))
}

/// A parsed `fieldSelector`: label of the field, whether it must be equal, value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        let mut terms = Vec::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let cut = ["!=", "==", "="].iter().find_map(|sign| Some((*sign, term.split_once(sign)?)));
            let Some((sign, (field, value))) = cut else {
                return Err(Refusal::BadRequest(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            terms.push((field.to_owned(), sign != "!=", value.to_owned()));
        }
        Ok(Self(terms))
    }

    /// The fields that are asked for.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(field, ..)| field.as_str())
    }

    /// Whether an object passes; `read` gives the value of a field.
    pub(crate) fn admits(&self, read: impl Fn(&str) -> String) -> bool {
        self.0.iter().all(|(field, equal, value)| (read(field) == *value) == *equal)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn admits(selector: &str, labels: Value) -> bool {
        let object = json!({"metadata": {"labels": labels}});
        LabelSelector::parse(selector).expect("a good selector").admits(&object)
    }

    #[test]
    fn label_selectors_choose_by_equality_set_and_existence() {
        let web = || json!({"app": "web", "tier": "3"});
        for selector in [
            "",
            "app=web",
            "app==web",
            "app in (web, db)",
            "app notin (db)",
            "app",
            "!gone",
            "gone!=x",
            "tier>2,tier<4",
        ] {
            assert!(admits(selector, web()), "{selector:?} should admit");
        }
        for selector in ["app=db", "app!=web", "app in (db,)", "!app", "gone", "gone in (x)", "tier>3", "app=web,gone"]
        {
            assert!(!admits(selector, web()), "{selector:?} should not admit");
        }
        assert!(admits("empty=", json!({"empty": ""})));
    }

    #[test]
    fn malformed_label_selectors_are_bad_requests() {
        for selector in ["a in (b", "a=b=c", "-a=b", "a in", "=", "a,,b", "a b", "(", "!", "a in b", "a>x", "a=(", "a,"]
        {
            assert!(matches!(LabelSelector::parse(selector), Err(Refusal::BadRequest(_))), "{selector:?} passed");
        }
    }

    #[test]
    fn field_selectors_compare_text() {
        let selector = FieldSelector::parse("spec.type=LoadBalancer,metadata.name!=a").expect("a good selector");
        let read = |name: &'static str| {
            move |field: &str| if field == "spec.type" { "LoadBalancer".to_owned() } else { name.to_owned() }
        };
        assert!(selector.admits(read("b")));
        assert!(!selector.admits(read("a")));
        assert!(FieldSelector::parse("nonsense").is_err());
    }
}
