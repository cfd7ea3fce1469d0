package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/sockopt"
)

// nameLookups is how many names are looked up at once.
const nameLookups = 64

// hostName returns the name in an endpoint's address that is looked up, or "" if there is none.
func hostName(address sockopt.Address) string {
	host, _, err := net.SplitHostPort(address.Name)
	if _, literal := netip.ParseAddr(host); err != nil || literal == nil || address.Network != "tcp" {
		return ""
	}
	return host
}

// UnresolvedNames looks up the names of a configuration's endpoints until ctx ends. It returns those
// that have no address, and those of which that is not known, each with the reason; both are sorted.
func UnresolvedNames(ctx context.Context, cfg *config.Config) (missing, unknown []string) {
	names := make(map[string]bool)
	for _, u := range cfg.Upstreams {
		for i := range u.Endpoints {
			if name := hostName(u.Endpoints[i].Address); name != "" {
				names[name] = true
			}
		}
	}
	failed := unresolved(ctx, slices.Collect(maps.Keys(names)))
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if err := failed[name]; noSuchName(err) {
			missing = append(missing, name)
		} else {
			unknown = append(unknown, fmt.Sprintf("%s (%v)", name, err))
		}
	}
	return missing, unknown
}

// unresolved looks names up side by side, and returns the error of each that has no address. The
// lookups that ctx ends have its error.
func unresolved(ctx context.Context, names []string) map[string]error {
	var mu sync.Mutex
	failed := make(map[string]error)
	next := make(chan string)
	var all sync.WaitGroup
	for range min(nameLookups, len(names)) {
		all.Go(func() {
			for name := range next {
				err := context.Cause(ctx)
				if err == nil {
					_, err = sockopt.Resolve(ctx, name)
				}
				if err != nil {
					mu.Lock()
					failed[name] = err
					mu.Unlock()
				}
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	all.Wait()
	return failed
}

// noSuchName reports whether name servers have said that a name has no address. Other errors leave that open.
func noSuchName(err error) bool {
	if both, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range both.Unwrap() {
			if !noSuchName(one) {
				return false
			}
		}
		return true
	}
	var failed *net.DNSError
	return errors.As(err, &failed) && failed.IsNotFound
}

const (
	// lookForNames is how often the names are looked up that did not resolve the last time, and new ones.
	lookForNames = 5 * time.Second
	// nameTime is how long a round of that takes at most.
	nameTime = 10 * time.Second
)

// watchNames looks up the names of endpoints without a check until stop: of others, the check says that theirs do not resolve.
func (s *Server) watchNames(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	good := make(map[string]bool)
	for {
		names := s.uncheckedNames()
		maps.DeleteFunc(good, func(name string, _ bool) bool { return !names[name] })
		maps.DeleteFunc(names, func(name string, _ bool) bool { return good[name] })
		round, end := context.WithTimeout(ctx, nameTime)
		failed := unresolved(round, slices.Collect(maps.Keys(names)))
		end()
		for name := range names {
			if failed[name] == nil {
				good[name] = true
			}
		}
		s.unresolved.Store(&failed)
		select {
		case <-stop:
			return
		case <-time.After(lookForNames):
		}
	}
}

// uncheckedNames returns the names of the hosts of endpoints that get clients and are not checked.
func (s *Server) uncheckedNames() map[string]bool {
	names := make(map[string]bool)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.upstreams {
		for _, m := range u.order {
			if name := m.endpoint.HostName(); name != "" && m.check == nil && m.mode != config.Maint {
				names[name] = true
			}
		}
	}
	return names
}
