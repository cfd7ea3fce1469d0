package sink

import (
	"sync"

	"github.com/penstock/penstock/bench/traffic"
)

// remembered is how many scripted connections a sink remembers.
const remembered = 4096

// ledger is a sink's record of its scripted connections. All its threads use it.
type ledger struct {
	mu      sync.Mutex
	reports map[uint64]traffic.Report // of mu, by token
	tokens  []uint64                  // of mu; the oldest first
}

// set remembers a report in place of the last one with that token.
func (l *ledger) set(token uint64, r traffic.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.reports[token]; !known {
		l.tokens = append(l.tokens, token)
	}
	l.reports[token] = r
	if len(l.tokens) > remembered {
		delete(l.reports, l.tokens[0])
		l.tokens = l.tokens[1:]
	}
}

// report returns the record of the connection with that token.
func (l *ledger) report(token uint64) traffic.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, known := l.reports[token]; known {
		return r
	}
	return traffic.Report{State: traffic.StateNone}
}
