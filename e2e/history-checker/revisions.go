package main

import (
	"fmt"
	"sort"
)

// revisions checks what holds over all keys: in real-time order revisions grow
// with every write and never go back, no two writes share one, and all answers
// come from one cluster.
func revisions(h *history) []violation {
	var answered []*operation
	for _, op := range h.operations {
		if op.Outcome == ok {
			answered = append(answered, op)
		}
	}
	found := foreign(answered)
	found = append(found, shared(answered)...)
	return append(found, backwards(answered)...)
}

func foreign(answered []*operation) []violation {
	for _, op := range answered {
		if first := answered[0]; op.ClusterID != first.ClusterID {
			text := fmt.Sprintf("cluster %s answers where cluster %s was", op.ClusterID, first.ClusterID)
			return []violation{{otherCluster, text, []*operation{first, op}}}
		}
	}
	return nil
}

func shared(answered []*operation) []violation {
	var found []violation
	writes := map[int64]*operation{}
	for _, op := range answered {
		if !op.ackedWrite() {
			continue
		}
		if other := writes[op.Revision]; other != nil {
			text := fmt.Sprintf("two acknowledged writes have revision %d", op.Revision)
			found = append(found, violation{sharedRevision, text, []*operation{other, op}})
		}
		writes[op.Revision] = op
	}
	return found
}

// backwards compares every operation with the highest revision that anyone had
// been told when it began.
func backwards(answered []*operation) []violation {
	byReturn := append([]*operation(nil), answered...)
	sort.SliceStable(byReturn, func(i, j int) bool { return byReturn[i].Return < byReturn[j].Return })
	var found []violation
	var highest *operation
	ended := 0
	for _, op := range answered {
		for ; byReturn[ended].Return < op.Call; ended++ {
			if highest == nil || byReturn[ended].Revision > highest.Revision {
				highest = byReturn[ended]
			}
		}
		switch {
		case op.ModRevision > op.Revision:
			text := fmt.Sprintf("a read at revision %d shows what revision %d wrote", op.Revision, op.ModRevision)
			found = append(found, violation{revisionBack, text, []*operation{op}})
		case highest == nil || op.Revision > highest.Revision:
		case op.ackedWrite():
			text := fmt.Sprintf("a write got revision %d after %d had been told", op.Revision, highest.Revision)
			found = append(found, violation{revisionBack, text, []*operation{highest, op}})
		case op.Revision < highest.Revision:
			text := fmt.Sprintf("revision %d was told after %d", op.Revision, highest.Revision)
			found = append(found, violation{revisionBack, text, []*operation{highest, op}})
		}
	}
	return found
}
