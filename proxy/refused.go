package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/monitor"
)

// refusals counts the clients that no target took, by what the last one tried has failed with.
type refusals [refusalKinds]atomic.Int64

const (
	refusedByTarget = iota // ECONNREFUSED, or ENOENT of a unix socket
	refusedTimeout
	refusedRoute
	refusedDescriptors
	refusedOther
	refusalKinds
)

var refusalTexts = [refusalKinds]string{"connection refused", "timed out", "no route", "no descriptors", "other"}

func (r *refusals) add(cause error) {
	kind := refusedOther
	switch {
	case core.LacksDescriptor(cause):
		kind = refusedDescriptors
	case errors.Is(cause, syscall.ECONNREFUSED), errors.Is(cause, syscall.ENOENT):
		kind = refusedByTarget
	case errors.Is(cause, os.ErrDeadlineExceeded), errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, syscall.ETIMEDOUT), isTimeout(cause):
		kind = refusedTimeout
	case errors.Is(cause, syscall.EHOSTUNREACH), errors.Is(cause, syscall.ENETUNREACH):
		kind = refusedRoute
	}
	r[kind].Add(1)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Reasons implements [monitor.Explanation].
func (r *refusals) Reasons(*monitor.Counter) map[string]int64 {
	m := make(map[string]int64)
	for kind := range r {
		if n := r[kind].Load(); n > 0 {
			m[refusalTexts[kind]] = n
		}
	}
	return m
}

// Attrs implements [monitor.Explanation].
func (*refusals) Attrs(*monitor.Counter, map[string]int64) []any { return nil }

// Level implements [monitor.Explanation].
func (*refusals) Level(*monitor.Counter, map[string]int64) slog.Level { return slog.LevelWarn }

// look is what is looked at for the log.
func (r *refusals) look(targets string) []monitor.Counter {
	c := monitor.Counter{Key: r, Message: "clients refused", Kind: "to", Name: targets}
	for kind := range r {
		c.Total += r[kind].Load()
	}
	return []monitor.Counter{c}
}

// lookEvery is how often it is looked whether clients are refused.
const lookEvery = time.Second

// sumRefusals logs once a minute how many clients were refused, until stop.
func (s *Server) sumRefusals(stop <-chan struct{}) {
	var targets []string
	for _, to := range s.cfg.To {
		targets = append(targets, to.String())
	}
	sums, start, of := monitor.NewSums(s.log), time.Now(), &s.unserved
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			now := int64(time.Since(start))
			sums.Look(now, of.look(strings.Join(targets, ", ")), of)
			sums.Tell(now, of)
			return
		case <-tick.C:
			sums.Look(int64(time.Since(start)), of.look(strings.Join(targets, ", ")), of)
		}
	}
}
