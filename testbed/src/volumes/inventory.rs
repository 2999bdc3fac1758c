//! The objects of one kind as the API server tells of them, by the name of the volume they belong to.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

pub struct Inventory<K> {
    name_of: fn(&K) -> String,
    objects: BTreeMap<String, K>,
    /// What came so far of a list that is not complete yet.
    incoming: BTreeMap<String, K>,
    is_listed: bool,
}

/// Which volumes have to be looked at after an event.
#[derive(Debug, PartialEq, Eq)]
pub enum Touched {
    Nothing,
    One(String),
    /// There is a new list.
    All,
}

impl<K> Inventory<K> {
    pub fn new(name_of: fn(&K) -> String) -> Self {
        Self { name_of, objects: BTreeMap::new(), incoming: BTreeMap::new(), is_listed: false }
    }

    /// Whether absence means anything yet.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub fn get(&self, name: &str) -> Option<&K> {
        self.objects.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }

    pub fn apply(&mut self, event: Event<K>) -> Touched {
        match event {
            Event::Init => {
                self.incoming.clear();
                Touched::Nothing
            }
            Event::InitApply(object) => {
                self.incoming.insert((self.name_of)(&object), object);
                Touched::Nothing
            }
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.incoming);
                self.is_listed = true;
                Touched::All
            }
            Event::Apply(object) => {
                let name = (self.name_of)(&object);
                self.objects.insert(name.clone(), object);
                Touched::One(name)
            }
            Event::Delete(object) => {
                let name = (self.name_of)(&object);
                self.objects.remove(&name);
                Touched::One(name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_missing_before_the_list_is_complete() {
        let mut inventory = Inventory::new(String::clone);
        assert_eq!(inventory.apply(Event::Init), Touched::Nothing);
        assert_eq!(inventory.apply(Event::InitApply("a".into())), Touched::Nothing);
        assert!(!inventory.is_listed());
        assert_eq!(inventory.apply(Event::InitDone), Touched::All);
        assert!(inventory.is_listed() && inventory.get("a").is_some());
    }

    #[test]
    fn what_a_new_list_does_not_have_is_gone() {
        let mut inventory = Inventory::new(String::clone);
        assert_eq!(inventory.apply(Event::Apply("a".into())), Touched::One("a".into()));
        inventory.apply(Event::Init);
        inventory.apply(Event::InitApply("b".into()));
        assert!(inventory.get("a").is_some(), "the old list holds until the new one is complete");
        inventory.apply(Event::InitDone);
        assert_eq!(inventory.names().collect::<Vec<_>>(), ["b"]);
        assert_eq!(inventory.apply(Event::Delete("b".into())), Touched::One("b".into()));
        assert_eq!(inventory.names().count(), 0);
    }
}
