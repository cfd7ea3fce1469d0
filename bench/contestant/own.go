package contestant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy/admin"
)

// own is the common part of the kinds that need no installed program.
type own struct{}

func (own) Available(context.Context, *Setting) error { return nil }
func (own) Config(context.Context, *Setting) string   { return "" }

// direct is no proxy.
type direct struct{ own }

func (direct) start(_ context.Context, name string, s *Setting) (*Contestant, error) {
	return &Contestant{Name: name, Address: s.Upstream}, nil
}

// rivalStarter starts package rival in one of its forms.
type rivalStarter struct {
	own
	form string
}

func (r rivalStarter) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	return startPart(ctx, name, s.Group, s.Program.Spec(name, s.Program.Part, PartRival, s.Upstream, r.form, s.listen()))
}

// startPart starts a part. The part's first line is a JSON object with the address at which it listens.
func startPart(ctx context.Context, name string, g *process.Group, spec process.Spec) (*Contestant, error) {
	var listening struct{ Address string }
	child, err := g.Begin(ctx, spec, nil, &listening)
	if err != nil {
		return nil, notStarted(name, err)
	}
	return &Contestant{Name: name, Address: listening.Address, child: child}, nil
}

// penstock starts `penstock proxy` with more flags.
type penstock struct {
	own
	flags []string
}

func (p penstock) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	dir, err := os.MkdirTemp(s.Dir, "penstock-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return startOwn(ctx, name, s, dir, func(socket string) (process.Spec, error) {
		args := append([]string{"--listen", s.listen(), "--to", s.Upstream, "--log", "json", "--admin", socket}, p.flags...)
		return s.Program.Penstock(name, s.Program.Proxy, args...), nil
	})
}

// startOwn starts the program with a JSON log, and waits until it listens. spec returns how to start it with the
// admin API at an address. That is a socket in dir if its path is short enough.
func startOwn(ctx context.Context, name string, s *Setting, dir string, spec func(socket string) (process.Spec, error)) (*Contestant, error) {
	path, remove, err := AdminSocket(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	run, err := spec("unix:" + path)
	if err != nil {
		remove()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	child, err := s.Group.Start(run)
	if err != nil {
		remove()
		return nil, err
	}
	go func() { <-child.Done(); remove() }()
	return awaitListener(ctx, name, child, "unix:"+path)
}

// awaitListener waits until the program in a child listens.
func awaitListener(ctx context.Context, name string, child *process.Child, socket string) (*Contestant, error) {
	c := &Contestant{Name: name, child: child}
	client, err := admin.NewClient(socket)
	if err != nil {
		child.Kill()
		return nil, err
	}
	c.admin = client
	c.ask = func(ctx context.Context) (*Account, error) { return c.summary(ctx, client) }
	for c.Address == "" {
		line, err := child.Stderr(ctx)
		if err != nil {
			child.Kill()
			return nil, notStarted(name, err)
		}
		var log struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &log) == nil && log.Msg == "listening" {
			c.Address = log.Address
		}
	}
	return c, nil
}

// summary gets Penstock's account from its admin API. It asks again while the process says that it is not ready.
func (c *Contestant) summary(ctx context.Context, client *admin.Client) (*Account, error) {
	for {
		st, err := client.Status(ctx)
		if err == nil {
			return accountOf(&st.Summary), nil
		}
		select {
		case <-c.child.Done():
			return nil, c.child.Err()
		case <-time.After(endTime):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if r := (*admin.Refusal)(nil); !errors.As(err, &r) || r.Code != http.StatusServiceUnavailable {
			return nil, err
		}
	}
}

// endTime is how long a child that has not answered may take to end. How it ended is a better error than the
// missing answer.
const endTime = time.Second

func accountOf(s *admin.Summary) *Account {
	there, back := s.Bytes.ClientToEndpoint, s.Bytes.EndpointToClient
	return &Account{
		Active:           s.Connections.Active,
		ClientToEndpoint: there.All(),
		EndpointToClient: back.All(),
		Spliced:          there.Spliced + back.Spliced,
		Copied:           there.Copied + back.Copied,
		Lane:             there.Lane + back.Lane,
		Summary:          s,
	}
}

// notStarted returns why a child is not ready, if possible in the child's own words.
func notStarted(name string, err error) error {
	var ended *process.EndedError
	if errors.As(Describe(err), &ended) && ended.Said != "" {
		return fmt.Errorf("%s did not start: %s", name, ended.Said)
	}
	return err
}

// longestSocket is the longest path for a unix socket. It is shorter than sun_path (unix(7)), because a new socket
// is bound beside the old one with a longer name.
const longestSocket = 90

// AdminSocket returns a path for the admin API of a process in the process's directory dir. If that would be too
// long for a unix socket, the path is in another directory. The caller calls remove after the process has ended.
func AdminSocket(dir string) (path string, remove func(), err error) {
	if path = filepath.Join(dir, "admin"); len(path) <= longestSocket {
		return path, func() {}, nil
	}
	if dir, err = os.MkdirTemp("/tmp", "penstock-"); err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "admin"), func() { _ = os.RemoveAll(dir) }, nil
}
