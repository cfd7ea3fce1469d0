package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A placement is the CPUs of the process, and the limits with which it was started. They stay as long as it runs.
type placement struct {
	limits    config.ProcessLimits
	stateFile config.Path  // of the first configuration
	restore   func() error // gives the threads their former CPUs; nil: they were not confined
	logged    string       // the last logged result of lasting
}

// confine confines the process to the CPUs of its configuration. On an error nothing is confined.
func confine(l *config.ProcessLimits) (p placement, err error) {
	p.limits = *l
	cpus := l.Loops.CPUs()
	if len(cpus) == 0 {
		return p, nil
	}
	if p.restore, err = topology.Confine(cpus); err == nil {
		return p, nil
	}
	if errors.Is(err, topology.ErrNotAllowed) {
		return p, fmt.Errorf("limits.loops.affinity: %w: the CPU is offline or not in the process's cpuset (AllowedCPUs= of systemd, --cpuset-cpus of a container): allow the CPU, or write other CPUs", err)
	}
	return p, fmt.Errorf("limits.loops.affinity: %w: leave it out, and start the process by taskset, or with CPUAffinity= of systemd", err)
}

func (p *placement) undo() error {
	if p.restore == nil {
		return nil
	}
	restore := p.restore
	p.restore = nil
	return restore()
}

func (o *Options) loops(cfg *config.Config) int {
	if o.Loops > 0 {
		return o.Loops
	}
	return cfg.Limits.Loops.Number(runtime.GOMAXPROCS(0))
}

// MostConnections returns the limit of connections under a configuration: its own, or what the descriptors allow if that is
// less.
func (o *Options) MostConnections(cfg *config.Config) int {
	most := o.MaxConnections
	if n := cfg.Limits.Connections; n > 0 && n < int64(most) {
		return int(n)
	}
	return most
}

// lasting returns the keys that take their new values only when the process is started again.
func (p *placement) lasting(cfg *config.Config, lane *lanes.Lanes) (lines []string) {
	for _, k := range p.awaiting(cfg, lane) {
		lines = append(lines, fmt.Sprintf("%s: %s → %s", k.Key, k.Old, k.New))
	}
	return lines
}

// Awaiting returns the keys, such as lane.sessions, that differ from the values in force, and take
// effect only when the process is started again. It may be called by any goroutine.
func (s *Server) Awaiting(next *config.Config) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.placement.awaiting(next, s.lanes) {
		keys = append(keys, k.Key)
	}
	return keys
}

// awaiting is [Server.Awaiting], with the section of each key, and its values in force and in next.
func (p *placement) awaiting(next *config.Config, lane *lanes.Lanes) (keys []config.KeyChange) {
	add := func(section string, changed []config.KeyChange) {
		for _, k := range changed {
			k.Key = section + "." + k.Key
			keys = append(keys, k)
		}
	}
	add("limits", p.limits.Lasting(&next.Limits))
	if next.StateFile != p.stateFile {
		keys = append(keys, config.KeyChange{Key: "state_file", Old: strconv.Quote(string(p.stateFile)), New: strconv.Quote(string(next.StateFile))})
	}
	add("lane", lane.Lasting(&next.Lane))
	return keys
}

func (p *placement) logLasting(log *slog.Logger, cfg *config.Config, lane *lanes.Lanes) {
	keys := strings.Join(p.lasting(cfg, lane), ", ")
	if keys != "" && keys != p.logged {
		log.Warn("some changes of the configuration take effect only after a restart", "keys", keys)
	}
	p.logged = keys
}

func memoryOf(m *config.MemoryLimits) worker.MemoryConfig {
	c := worker.MemoryConfig{Mlock: m.Mlock, RequireHuge: m.HugePages == config.HugePagesRequire, Unbound: m.NUMA == config.NodeOff}
	if m.HugePages == config.HugePagesOff {
		c.Pages = arena.PagesPlain
	}
	c.Node, c.Bound = m.NUMA.Number()
	return c
}

func explainMemory(m *config.MemoryLimits, err error) error {
	switch {
	case errors.Is(err, worker.ErrHugePages):
		return fmt.Errorf("limits.memory.huge_pages: %w: reserve huge pages (sysctl -w vm.nr_hugepages=N, each of 2 MiB), allow transparent huge pages (echo madvise > /sys/kernel/mm/transparent_hugepage/enabled), or write auto", oneLine(err))
	case errors.Is(err, arena.ErrLock):
		return fmt.Errorf("limits.memory.mlock: %w", oneLine(err))
	case errors.Is(err, arena.ErrBind):
		return fmt.Errorf("limits.memory.numa: %w: allow node %s to this process (AllowedMemoryNodes= of systemd, --cpuset-mems of a container) and mbind to its sandbox, or write off", oneLine(err), m.NUMA)
	}
	return err
}

// oneLine returns an error with its text on one line.
func oneLine(err error) error {
	if !strings.Contains(err.Error(), "\n") {
		return err
	}
	return joined{err}
}

type joined struct{ error }

func (j joined) Error() string { return strings.ReplaceAll(j.error.Error(), "\n", "; ") }
func (j joined) Unwrap() error { return j.error }

func describeMemory(a *admin.Arena, m worker.Memory) {
	a.Pages, a.Locked, a.Nodes = m.Pages.String(), m.Locked, m.Nodes
	a.Fallback, a.Unbound = strings.ReplaceAll(textOf(m.Fallback), "\n", "; "), strings.ReplaceAll(textOf(m.Unbound), "\n", "; ")
}
