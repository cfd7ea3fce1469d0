package contestant

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/penstock/penstock/bench/process"
)

// Echo is an echo server in a program of its own. As parts do, it prints the
// address that it listens at in its first line, and ends with its standard
// input. It needs no upstream, and takes part where nothing but echo is
// measured.
type Echo struct {
	Name, About string
	// Module is the module with the server's version; "" is Go's.
	Module string
}

// Echoes returns those of directory bench/echo, the one
// on Penstock's loops first.
func Echoes() []Echo {
	return []Echo{
		{"loop", "Penstock's loops", "github.com/penstock/penstock"},
		{"coroutine", "coroutines of Penstock's loops", "github.com/penstock/penstock"},
		{"gnet", "gnet, a loop for each processor", "github.com/panjf2000/gnet/v2"},
		{"netpoll", "netpoll with its default settings", "github.com/cloudwego/netpoll"},
		{"std", "the standard library, a goroutine for each connection", ""},
	}
}

// Kind returns the server with its program in dir.
func (e Echo) Kind(dir string) *Kind {
	return &Kind{e.Name, e.About, echoStarter{path: filepath.Join(dir, e.Name), module: e.Module}}
}

// echoStarter starts an Echo.
type echoStarter struct {
	own
	path, module string
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
	c, err := startPart(ctx, name, s.Group, process.Spec{Name: name, Path: path, Args: []string{name}, Env: s.Program.Env})
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
		if m.Path == e.module {
			return m.Version
		}
	}
	if e.module == "" {
		return info.GoVersion
	}
	return ""
}
