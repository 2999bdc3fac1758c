package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
)

// kind is what a client asked for.
type kind string

const (
	put    kind = "put"
	get    kind = "get"
	remove kind = "delete"
	// cas writes if the key has the expected value, and reads the key if not.
	cas kind = "cas"
	// rest is no operation: for this time nobody was meant to write.
	rest kind = "rest"
)

// outcome is what the client knows about the end of its operation.
type outcome string

const (
	ok      outcome = "ok"
	failed  outcome = "failed"
	unknown outcome = "unknown"
)

// operation is one line of a history. docs/histories.md describes the fields.
type operation struct {
	Client      int     `json:"client"`
	Kind        kind    `json:"kind"`
	Key         string  `json:"key"`
	Write       string  `json:"write"`
	Expected    *string `json:"expected"`
	Read        *string `json:"read"`
	Applied     bool    `json:"applied"`
	Call        int64   `json:"call"`
	Return      int64   `json:"return"`
	Outcome     outcome `json:"outcome"`
	Revision    int64   `json:"revision"`
	ModRevision int64   `json:"mod_revision"`
	ClusterID   string  `json:"cluster_id"`
	MemberID    string  `json:"member_id"`
	Endpoint    string  `json:"endpoint"`
	Final       bool    `json:"final"`
	Error       string  `json:"error"`
}

// writes says whether the operation would change the key if it took effect.
func (op *operation) writes() bool { return op.Kind != get && op.Kind != rest }

// stores says whether it would give the key the value op.Write.
func (op *operation) stores() bool { return op.Kind == put || op.Kind == cas }

// ackedWrite says whether the client was told that the key was changed.
func (op *operation) ackedWrite() bool { return op.Outcome == ok && op.Applied && op.writes() }

// looks says whether the answer tells what the key held.
func (op *operation) looks() bool {
	return op.Outcome == ok && (op.Kind == get || op.Kind == cas && !op.Applied)
}

// history is what all clients did, in the order in which they began.
type history struct {
	operations []*operation
	rests      []*operation
}

func read(lines io.Reader) (*history, error) {
	h := &history{}
	scanner := bufio.NewScanner(lines)
	for number := 1; scanner.Scan(); number++ {
		op := &operation{}
		if err := json.Unmarshal(scanner.Bytes(), op); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if err := op.malformed(); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if op.Kind == rest {
			h.rests = append(h.rests, op)
		} else {
			h.operations = append(h.operations, op)
		}
	}
	sort.SliceStable(h.operations, func(i, j int) bool { return h.operations[i].Call < h.operations[j].Call })
	return h, errors.Join(scanner.Err(), h.impossibleClient())
}

func (op *operation) malformed() error {
	switch op.Kind {
	case rest:
	case put, get, remove, cas:
		if op.Key == "" {
			return errors.New("an operation without a key")
		}
	default:
		return fmt.Errorf("unknown kind %q", op.Kind)
	}
	switch {
	case op.Return < op.Call:
		return errors.New("it returns before it is called")
	case op.Kind == rest:
		return nil
	case op.stores() && op.Write == "":
		return errors.New("a write without a value")
	case op.Kind == put && op.Outcome == ok && !op.Applied:
		return errors.New("a put that is ok and was not applied")
	}
	switch op.Outcome {
	case failed, unknown:
		return nil
	case ok:
		if op.Revision <= 0 || op.ClusterID == "" {
			return errors.New("an answer without a revision or cluster ID")
		}
		return nil
	}
	return fmt.Errorf("unknown outcome %q", op.Outcome)
}

// impossibleClient finds a client that did two things at once, or went on after
// an operation of which it does not know the end.
func (h *history) impossibleClient() error {
	last := map[int]*operation{}
	for _, op := range h.operations {
		before := last[op.Client]
		if before != nil && (before.Outcome == unknown || op.Call < before.Return) {
			return fmt.Errorf("client %d begins before its last operation has ended:\n%s\n%s", op.Client, before, op)
		}
		last[op.Client] = op
	}
	return nil
}

// byKey keeps the order.
func (h *history) byKey() map[string][]*operation {
	keys := map[string][]*operation{}
	for _, op := range h.operations {
		keys[op.Key] = append(keys[op.Key], op)
	}
	return keys
}

// String is one line for people.
func (op *operation) String() string {
	return fmt.Sprintf("  %-44s client %-3d %11.6f .. %11.6f s  %s", op.what(), op.Client,
		seconds(op.Call), seconds(op.Return), op.end())
}

func (op *operation) what() string {
	text := fmt.Sprintf("%s %s", op.Kind, op.Key)
	if op.Kind == cas {
		text += fmt.Sprintf(" from %s", shown(op.Expected))
	}
	if op.stores() {
		text += fmt.Sprintf(" to %s", op.Write)
	}
	if op.looks() {
		text += fmt.Sprintf(" -> %s", shown(op.Read))
	} else if op.Outcome == ok && op.Kind != put && !op.Applied {
		text += " -> nothing there"
	}
	return text
}

func (op *operation) end() string {
	if op.Outcome != ok {
		return fmt.Sprintf("%s (%s): %s", op.Outcome, op.Endpoint, op.Error)
	}
	text := fmt.Sprintf("ok, revision %d", op.Revision)
	if op.looks() && op.Read != nil {
		text += fmt.Sprintf(", modified at %d", op.ModRevision)
	}
	return text + fmt.Sprintf(", cluster %s, member %s (%s)", op.ClusterID, op.MemberID, op.Endpoint)
}

func shown(value *string) string {
	if value == nil {
		return "(no key)"
	}
	return *value
}

func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / 1e9 }
