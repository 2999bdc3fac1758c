package main

import "sort"

// statistics is what the program prints for other programs.
type statistics struct {
	Verdict     string `json:"verdict"`
	Operations  int    `json:"operations"`
	AckedWrites int    `json:"acked_writes"`
	Failed      int    `json:"failed"`
	Unknown     int    `json:"unknown"`
	Keys        int    `json:"keys"`
	// The longest time in which no write was acknowledged to anyone, and when it began.
	LongestGap      int64 `json:"longest_gap_ns"`
	LongestGapBegan int64 `json:"longest_gap_began_ns"`
}

func count(h *history) statistics {
	counted := statistics{Operations: len(h.operations), Keys: len(h.byKey())}
	for _, op := range h.operations {
		switch {
		case op.ackedWrite():
			counted.AckedWrites++
		case op.Outcome == failed:
			counted.Failed++
		case op.Outcome == unknown:
			counted.Unknown++
		}
	}
	counted.LongestGapBegan, counted.LongestGap = longestGap(h)
	return counted
}

// longestGap looks at the times that are neither an acknowledged write's return
// nor a rest. It begins at the first of them: nobody knows when there was a
// cluster to write to before.
func longestGap(h *history) (began, length int64) {
	covered := append([]*operation(nil), h.rests...)
	for _, op := range h.operations {
		if op.ackedWrite() {
			covered = append(covered, &operation{Call: op.Return, Return: op.Return})
		}
	}
	if len(covered) == 0 {
		return 0, 0
	}
	sort.Slice(covered, func(i, j int) bool { return covered[i].Call < covered[j].Call })
	until := covered[0].Return
	for _, next := range covered {
		if gap := next.Call - until; gap > length {
			began, length = until, gap
		}
		until = max(until, next.Return)
	}
	return began, length
}
