// Command history-checker judges what clients of one etcd cluster recorded:
// whether the cluster kept its promises, and how long nobody could write.
//
//	history-checker [-limit DURATION] FILE
//
// The verdict for people goes to standard error, statistics as one line of JSON
// to standard output. It exits with 0 if nothing is wrong, with 1 if something
// is, and with 2 if it cannot tell.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	good = iota
	violated
	undecided
)

var verdicts = [...]string{good: "good", violated: "violated", undecided: "undecided"}

func main() {
	limit := flag.Duration("limit", time.Minute, "how long to look for an order of the operations")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: history-checker [-limit DURATION] FILE")
		os.Exit(undecided)
	}
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(undecided)
	}
	os.Exit(run(file, *limit, os.Stdout, os.Stderr))
}

func run(file io.Reader, limit time.Duration, forPrograms, forPeople io.Writer) int {
	h, err := read(file)
	if err != nil {
		fmt.Fprintln(forPeople, "UNDECIDED: not a history:", err)
		return undecided
	}
	counted := count(h)
	verdict, text := judge(h, limit)
	counted.Verdict = verdicts[verdict]
	fmt.Fprint(forPeople, text)
	fmt.Fprintf(forPeople, "%s: %d operations on %d keys, %d acknowledged writes, %d failed, %d unknown; longest time without a write %.3f s, from %.3f s on\n",
		strings.ToUpper(counted.Verdict), counted.Operations, counted.Keys, counted.AckedWrites, counted.Failed, counted.Unknown,
		seconds(counted.LongestGap), seconds(counted.LongestGapBegan))
	if err := json.NewEncoder(forPrograms).Encode(counted); err != nil {
		fmt.Fprintln(forPeople, err)
		return undecided
	}
	return verdict
}

// judge puts what is certainly wrong before what could not be found out.
func judge(h *history, limit time.Duration) (verdict int, text string) {
	found := revisions(h)
	withRevisions := len(found) == 0
	deadline := time.Now().Add(limit)
	keys := h.byKey()
	var doubts []string
	for _, key := range sorted(keys) {
		if named := values(key, keys[key]); len(named) > 0 {
			found = append(found, named...)
			continue
		}
		result, events := linearizable(keys[key], withRevisions, max(1, time.Until(deadline)))
		switch result {
		case porcupine.Illegal:
			found = append(found, stuck(key, events, max(1, time.Until(deadline))))
		case porcupine.Unknown:
			doubts = append(doubts, fmt.Sprintf("no answer in %s whether the operations on %s can be ordered", limit, key))
		case porcupine.Ok:
		}
	}
	if len(found) > 0 {
		return violated, describe(found)
	}
	for _, key := range unread(keys) {
		doubts = append(doubts, fmt.Sprintf("%s was written and has no final read", key))
	}
	if count(h).AckedWrites == 0 {
		doubts = append(doubts, "no write was acknowledged")
	}
	if len(doubts) > 0 {
		return undecided, "UNDECIDED: " + strings.Join(doubts, "\nUNDECIDED: ") + "\n"
	}
	return good, ""
}

func sorted(keys map[string][]*operation) []string {
	var names []string
	for key := range keys {
		names = append(names, key)
	}
	sort.Strings(names)
	return names
}
