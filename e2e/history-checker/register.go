package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is one key of etcd as it is between two operations.
type register struct {
	present bool
	value   string
	// The revision that wrote it, 0 if that was never told.
	modRevision int64
	// The highest revision that any operation on the key has had so far. It makes
	// the search short: of two answered operations, only one can come first.
	revision int64
	// How many deletes and writes of unknown end were needed so far.
	unknownDeletes, unseenWrites int
}

// step is an operation whose answer has to be explained, with what may have
// happened unseen until it returned.
type step struct {
	*operation
	// Deletes of unknown end.
	unknownDeletes int
	// Writes of unknown end whose value nobody ever read.
	unseenWrites int
}

// An operation of unknown end may take effect at any later time, or never. As
// an element of the search it would double the work with each one. It need not
// be one: values are unique, so a write either was seen, which settles it, or
// it can only have made a key present that a later delete found; and a delete
// can only have made a key absent. Both are drawn on when an answer needs them.
var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) { return state.(register).next(input.(*step)) },
}

// linearizable says whether some order of the operations on one key, each at a
// moment between its call and its return, explains every answer.
//
// Without revisions only values are compared: where they are known to be wrong,
// their errors would hide whether the values are right.
func linearizable(operations []*operation, withRevisions bool, limit time.Duration) (porcupine.CheckResult, []porcupine.Operation) {
	events := events(operations, withRevisions)
	return porcupine.CheckOperationsTimeout(model, events, limit), events
}

func events(operations []*operation, withRevisions bool) []porcupine.Operation {
	seen := observed(operations)
	var events []porcupine.Operation
	var deletes, writes []int64
	for _, op := range operations {
		event := porcupine.Operation{ClientId: op.Client, Call: op.Call, Return: op.Return, Metadata: op}
		answered := *op
		if sight, known := seen[op.Write]; known && op.Outcome == unknown && op.stores() {
			// It took effect, before the first that saw it had returned.
			answered.Outcome, answered.Applied, answered.Revision = ok, true, sight.modRevision
			event.Return = max(op.Call, sight.until)
		}
		if answered.Outcome == ok {
			if !withRevisions {
				answered.Revision, answered.ModRevision = 0, 0
			}
			event.Input = &step{operation: &answered}
			events = append(events, event)
		} else if op.Outcome == unknown && op.Kind == remove {
			deletes = append(deletes, op.Call)
		} else if op.Outcome == unknown && op.stores() {
			writes = append(writes, op.Call)
		}
	}
	for _, event := range events {
		explained := event.Input.(*step)
		explained.unknownDeletes = begun(deletes, event.Return)
		explained.unseenWrites = begun(writes, event.Return)
	}
	return events
}

// begun counts the calls, which are sorted, up to a time.
func begun(calls []int64, until int64) int {
	return sort.Search(len(calls), func(i int) bool { return calls[i] > until })
}

// sighting is what is known of a write because its value was seen.
type sighting struct {
	// When the first that saw it had returned.
	until int64
	// 0 if nobody was told.
	modRevision int64
}

// observed has every value that was seen. A cas that took effect has seen the
// value that it expected; one of unknown end has, if its own value was seen. So
// it takes another round as long as there was news.
func observed(operations []*operation) map[string]sighting {
	seen := map[string]sighting{}
	for news := true; news; {
		news = false
		for _, op := range operations {
			value, now := op.sees(seen)
			if value == nil {
				continue
			}
			before, known := seen[*value]
			if known {
				now = sighting{min(before.until, now.until), max(before.modRevision, now.modRevision)}
			}
			if !known || now != before {
				seen[*value] = now
				news = true
			}
		}
	}
	return seen
}

func (op *operation) sees(seen map[string]sighting) (*string, sighting) {
	switch {
	case op.looks():
		return op.Read, sighting{op.Return, op.ModRevision}
	case op.Kind == cas && op.ackedWrite():
		return op.Expected, sighting{op.Return, 0}
	case op.Kind == cas && op.Outcome == unknown:
		if own, known := seen[op.Write]; known {
			return op.Expected, sighting{own.until, 0}
		}
	}
	return nil, sighting{}
}

func (r register) next(op *step) (bool, any) {
	if op.Revision != 0 {
		if op.Revision < r.revision || op.Applied && op.Revision == r.revision {
			return false, r
		}
		r.revision = op.Revision
	}
	var explained bool
	switch op.Kind {
	case put:
		return true, r.with(op.Write, op.Revision)
	case get:
		explained, r = r.shows(op, op.Read)
		return explained, r
	case remove:
		if op.Applied {
			explained, r = r.somehowPresent(op)
		} else {
			explained, r = r.shows(op, nil)
		}
		return explained, r.without()
	case cas:
		if op.Applied {
			explained, r = r.shows(op, op.Expected)
			return explained, r.with(op.Write, op.Revision)
		}
		explained, r = r.shows(op, op.Read)
		return explained && !r.is(op.Expected), r
	case rest:
	}
	return false, r
}

// shows says whether an operation may find the value, or no key if it is nil.
func (r register) shows(op *step, value *string) (bool, register) {
	if value == nil && r.present && r.unknownDeletes < op.unknownDeletes {
		r.unknownDeletes++
		r = r.without()
	}
	told := r.present && r.modRevision != 0 && op.looks() && op.ModRevision != 0
	return r.is(value) && (!told || op.ModRevision == r.modRevision), r
}

// somehowPresent says whether a delete may have found the key.
func (r register) somehowPresent(op *step) (bool, register) {
	if !r.present && r.unseenWrites < op.unseenWrites {
		r.unseenWrites++
		r.present = true
	}
	return r.present, r
}

func (r register) is(value *string) bool {
	if value == nil {
		return !r.present
	}
	return r.present && r.value == *value
}

func (r register) with(value string, revision int64) register {
	r.present, r.value, r.modRevision = true, value, revision
	return r
}

func (r register) without() register {
	r.present, r.value, r.modRevision = false, "", 0
	return r
}

// How many operations are told before and after the place where no order goes on.
const toldAround = 4

// stuck tells how far an order can be found, and what cannot follow.
func stuck(key string, events []porcupine.Operation, limit time.Duration) violation {
	_, info := porcupine.CheckOperationsVerbose(model, events, limit)
	var longest []int
	for _, partial := range info.PartialLinearizations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	placed := map[int]bool{}
	state := register{}
	for _, id := range longest {
		placed[id] = true
		_, next := state.next(events[id].Input.(*step))
		state = next.(register)
	}
	var told []*operation
	for _, id := range longest[max(0, len(longest)-toldAround):] {
		told = append(told, events[id].Metadata.(*operation))
	}
	for id, event := range events {
		if !placed[id] && len(told) < 2*toldAround {
			told = append(told, event.Metadata.(*operation))
		}
	}
	text := fmt.Sprintf("no order of the operations on %s explains their answers; %d of %d can be ordered, after which it is %s; "+
		"the last of these and the first of the others:", key, len(longest), len(events), state)
	return violation{notLinearizable, text, told}
}

func (r register) String() string {
	if !r.present {
		return "not there"
	}
	return r.value
}
