package main

import "fmt"

// values names what is wrong with one key where a name can be given. Whatever
// it finds also makes the key not linearizable, which says less.
func values(key string, operations []*operation) []violation {
	writers := map[string]*operation{}
	for _, op := range operations {
		if op.stores() {
			writers[op.Write] = op
		}
	}
	var found []violation
	for _, op := range operations {
		if !op.looks() || op.Read == nil {
			continue
		}
		switch writer := writers[*op.Read]; {
		case writer == nil:
			text := fmt.Sprintf("%s has a value that nobody wrote", key)
			found = append(found, violation{inventedValue, text, []*operation{op}})
		case writer.Outcome == failed || writer.Outcome == ok && !writer.Applied:
			text := fmt.Sprintf("%s has the value of a write that did not take place", key)
			found = append(found, violation{inventedValue, text, []*operation{writer, op}})
		}
	}
	return append(found, lost(key, operations, writers)...)
}

// lost compares final reads with the last acknowledged write.
func lost(key string, operations []*operation, writers map[string]*operation) []violation {
	var last *operation
	perhapsDeleted := false
	for _, op := range operations {
		if op.ackedWrite() && (last == nil || op.Revision > last.Revision) {
			last = op
		}
		perhapsDeleted = perhapsDeleted || op.Kind == remove && op.Outcome == unknown
	}
	if last == nil {
		return nil
	}
	var found []violation
	for _, op := range operations {
		if !op.Final || !op.looks() {
			continue
		}
		var explained bool
		if op.Read == nil {
			explained = last.Kind == remove || perhapsDeleted
		} else {
			writer := writers[*op.Read]
			explained = writer == nil || writer.Outcome == unknown || writer == last
		}
		if !explained {
			text := fmt.Sprintf("at the end %s does not show its last acknowledged write", key)
			found = append(found, violation{lostWrite, text, []*operation{last, op}})
		}
	}
	return found
}

// unread lists keys that were written and have no final read, so that a write
// lost at the end would not be seen.
func unread(keys map[string][]*operation) []string {
	var without []string
	for _, key := range sorted(keys) {
		written, final := false, false
		for _, op := range keys[key] {
			written = written || op.ackedWrite()
			final = final || op.Final && op.looks()
		}
		if written && !final {
			without = append(without, key)
		}
	}
	return without
}
