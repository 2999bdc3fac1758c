//! In which namespaces the operator works.

use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource};

/// Everywhere, or in these namespaces only: then it needs no rights outside of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Everywhere,
    Namespaces(Vec<String>),
}

impl Scope {
    /// None named means everywhere.
    pub fn of(namespaces: &[String]) -> Self {
        let mut namespaces = namespaces.to_vec();
        namespaces.sort();
        namespaces.dedup();
        if namespaces.is_empty() { Self::Everywhere } else { Self::Namespaces(namespaces) }
    }

    /// One for each list that has to be watched.
    pub fn apis<K>(&self, client: &Client) -> Vec<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::Everywhere => vec![Api::all(client.clone())],
            Self::Namespaces(namespaces) => {
                namespaces.iter().map(|it| Api::namespaced(client.clone(), it)).collect()
            }
        }
    }

    /// The same, for objects of this kind whose content is read later.
    pub fn dynamic_apis(&self, client: &Client, kind: &ApiResource) -> Vec<Api<DynamicObject>> {
        match self {
            Self::Everywhere => vec![Api::all_with(client.clone(), kind)],
            Self::Namespaces(namespaces) => {
                namespaces.iter().map(|it| Api::namespaced_with(client.clone(), it, kind)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_namespace_it_is_everywhere_and_each_counts_once() {
        let of = |names: &[&str]| Scope::of(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), Scope::Everywhere);
        assert_eq!(of(&["b", "a", "b"]), Scope::Namespaces(vec!["a".into(), "b".into()]));
    }
}
