package main

import "testing"

// acked is an acknowledged write that returned at a time.
func acked(at int64) *operation {
	return &operation{Kind: put, Outcome: ok, Applied: true, Call: at - 1, Return: at}
}

func TestTheLongestGap(t *testing.T) {
	resting := func(from, to int64) *operation { return &operation{Kind: rest, Call: from, Return: to} }
	cases := map[string]struct {
		h             history
		began, length int64
	}{
		"nothing was written":             {history{}, 0, 0},
		"before the first is no gap":      {history{operations: []*operation{acked(100)}}, 0, 0},
		"between returns":                 {history{operations: []*operation{acked(10), acked(25), acked(30)}}, 10, 15},
		"in order of returns":             {history{operations: []*operation{acked(30), acked(10), acked(25)}}, 10, 15},
		"a rest is no gap":                {history{operations: []*operation{acked(10), acked(200)}, rests: []*operation{resting(12, 195)}}, 195, 5},
		"after the last until the end":    {history{operations: []*operation{acked(10)}, rests: []*operation{resting(40, 50)}}, 10, 30},
		"a write that ends within a rest": {history{operations: []*operation{acked(10), acked(22), acked(60)}, rests: []*operation{resting(20, 50)}}, 10, 10},
		"only what changed something counts": {history{operations: []*operation{acked(10),
			{Kind: get, Outcome: ok, Return: 15}, {Kind: put, Outcome: unknown, Return: 17}, acked(20)}}, 10, 10},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if began, length := longestGap(&c.h); began != c.began || length != c.length {
				t.Errorf("%d from %d, wanted %d from %d", length, began, c.length, c.began)
			}
		})
	}
}
