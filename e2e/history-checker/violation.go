package main

import (
	"fmt"
	"strings"
)

// The names of what can be wrong.
const (
	lostWrite       = "lost write"
	inventedValue   = "invented value"
	revisionBack    = "revision went back"
	sharedRevision  = "shared revision"
	otherCluster    = "other cluster"
	notLinearizable = "not linearizable"
)

// violation is something that etcd promises not to do.
type violation struct {
	name       string
	text       string
	operations []*operation
}

// At most so many of each name are told: they tend to have one cause.
const toldOfEach = 5

// describe tells the first of each name with its operations.
func describe(violations []violation) string {
	var text strings.Builder
	count := map[string]int{}
	for _, v := range violations {
		count[v.name]++
		if count[v.name] > toldOfEach {
			continue
		}
		fmt.Fprintf(&text, "%s: %s\n", strings.ToUpper(v.name), v.text)
		for _, op := range v.operations {
			fmt.Fprintln(&text, op)
		}
	}
	for _, name := range []string{lostWrite, inventedValue, revisionBack, sharedRevision, otherCluster, notLinearizable} {
		if more := count[name] - toldOfEach; more > 0 {
			fmt.Fprintf(&text, "%s: %d more\n", strings.ToUpper(name), more)
		}
	}
	return text.String()
}
