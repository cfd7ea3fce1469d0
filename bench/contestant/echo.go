package contestant

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/penstock/penstock/bench/echo"
	"github.com/penstock/penstock/bench/process"
)

// Echo is an echo server in a program of its own. As parts do, it prints the
// address that it listens at in its first line, and ends with its standard
// input. It needs no upstream, and takes part where nothing but its services is
// measured.
type Echo struct {
	Name, About string
	// Program is the name of the executable, and of the directory with its source. Its arguments
	// are the service that is asked for, and Way if it has several.
	Program, Way string
	// Module is the module with the server's version; "" is Go's.
	Module   string
	Services []string // "echo", "hello"
}

// Echoes returns those of directory bench/echo, the one
// on Penstock's loops first.
func Echoes() []Echo {
	const own = "github.com/penstock/penstock"
	echo, both := []string{"echo"}, []string{"echo", "hello"}
	return []Echo{
		{"loop", "Penstock's loops", "loop", "", own, echo},
		{"coroutine", "coroutines of Penstock's loops", "coroutine", "", own, both},
		{"callback", "the same without coroutines", "coroutine", "callback", own, both},
		{"idle", "coroutines that end while there is nothing to do", "coroutine", "idle", own, echo},
		{"gnet", "gnet, a loop for each processor", "gnet", "", "github.com/panjf2000/gnet/v2", both},
		{"netpoll", "netpoll with its default settings", "netpoll", "", "github.com/cloudwego/netpoll", both},
		{"nethttp", "package net/http", "nethttp", "", "", []string{"hello"}},
		{"std", "package net, a goroutine for each connection", "std", "", "", both},
	}
}

// Kind returns the server with its program in dir.
func (e Echo) Kind(dir string) *Kind {
	return &Kind{e.Name, e.About, echoStarter{Echo: e, path: filepath.Join(dir, e.Program)}}
}

// Lines returns the lines of code of each service.
func (e Echo) Lines() (map[string]int, error) {
	lines := make(map[string]int)
	for _, service := range e.Services {
		file := service
		if e.Way == "idle" {
			file = e.Way
		}
		n, err := echo.Lines(e.Program, file)
		if err != nil {
			return nil, err
		}
		lines[service] = n
	}
	return lines, nil
}

// Serves reports whether the kind takes part in a workload: an Echo does if that is its service.
func (k *Kind) Serves(workload string) bool {
	e, ok := k.starter.(echoStarter)
	return !ok || slices.Contains(e.Services, workload)
}

// echoStarter starts an Echo.
type echoStarter struct {
	own
	Echo
	path string
}

func (e echoStarter) available(context.Context, *Setting) error {
	if _, err := exec.LookPath(e.path); err != nil {
		return fmt.Errorf("%s is not built: %w", filepath.Base(e.path), errors.Unwrap(err))
	}
	return nil
}

func (e echoStarter) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	path, err := filepath.Abs(e.path)
	if err != nil {
		return nil, err
	}
	c, err := startPart(ctx, name, s.Group, process.Spec{Name: name, Path: path, Args: []string{name, s.Service, e.Way}, Env: s.Program.Env})
	if err != nil {
		return nil, err
	}
	c.mortal = true
	return c, nil
}

// version is that of the module, or of Go, with which the program was built.
func (e echoStarter) version() string {
	info, err := buildinfo.ReadFile(e.path)
	if err != nil {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == e.Module {
			return m.Version
		}
	}
	if e.Module == "" {
		return info.GoVersion
	}
	return ""
}
