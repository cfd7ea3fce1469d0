// Package contestant has the proxies that a benchmark measures: Penstock's engines, the rival written with
// io.Copy, HAProxy, nginx and Envoy, and no proxy at all. It writes their configurations and starts them in front
// of an upstream. It also reads their own counts of moved bytes, if they have any. It is for Linux only.
package contestant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy/admin"
)

type child = process.Child

// Contestant is a proxy that accepts connections, and the process in which it runs. Direct has no process. A
// Contestant is safe for concurrent use, except for Account and Settle.
type Contestant struct {
	Name    string // name of the contestant's kind
	Address string // address at which it listens

	*child                                         // nil for direct; the Setting's group ends the child
	ask    func(context.Context) (*Account, error) // nil for a contestant without an account
	admin  *admin.Client                           // nil for all contestants except Penstock
	// mortal is true if the contestant dies of SIGTERM even if it ends in good order, as HAProxy does.
	mortal bool
}

// Account has the contestant's own counts since it started.
type Account struct {
	Active int64 // connections of clients that are open
	// ClientToEndpoint and EndpointToClient are the moved bytes. HAProxy counts the bytes of a connection only
	// when the connection ends.
	ClientToEndpoint, EndpointToClient int64
	// Spliced, Copied and Lane are the same bytes, by the way in which they were moved.
	Spliced, Copied, Lane int64
	Summary               *admin.Summary // from Penstock; nil for others
}

// Account asks the contestant for its account, or returns nil if it keeps none. If ctx ends during the call,
// Account must not be called again, because a late answer would be taken for the next one.
func (c *Contestant) Account(ctx context.Context) (*Account, error) {
	if c.ask == nil {
		return nil, nil
	}
	a, err := c.ask(ctx)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("account of %s: %w", c.Name, err)
	}
	return a, nil
}

// Settle calls Account until the contestant has no connection, so that all moved bytes are counted. It fails if
// ctx ends before that.
func (c *Contestant) Settle(ctx context.Context) (*Account, error) {
	var held int64
	for pause := time.Millisecond; ; pause *= 2 {
		a, err := c.Account(ctx)
		switch {
		case err != nil && ctx.Err() != nil && held > 0:
			return nil, fmt.Errorf("%s still holds %d connections after all were closed%s", c.Name, held, c.sessions(context.WithoutCancel(ctx)))
		case err != nil || a == nil || a.Active == 0:
			return a, err
		}
		held = a.Active
		select {
		case <-time.After(pause):
		case <-ctx.Done(): // the next Account returns the error
		}
	}
}

// sessions names some of the contestant's sessions, or returns "" if they cannot be listed.
func (c *Contestant) sessions(ctx context.Context) (names string) {
	if c.admin == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	list, _ := c.admin.Sessions(ctx, admin.SessionQuery{}, admin.SessionOrder{By: "age", Top: 4})
	for _, one := range list.Sessions {
		names += fmt.Sprintf("; %s of %s, %s: %s, engine %q, %+v, %d ms old", one.ID, one.Client, one.EndpointLocal, one.State, one.Engine, one.Bytes, one.AgeUs/1000)
	}
	return names
}

// Err waits until the contestant ends without having been stopped, and describes that by an error that wraps a
// *process.EndedError. For direct it returns nil at once.
func (c *Contestant) Err() error {
	if c.child == nil {
		return nil
	}
	return Describe(c.child.Err())
}

// Stop ends the contestant by SIGTERM. After d it kills all processes that are left. The error says that this was
// necessary, or how the contestant ended if it did not end well.
func (c *Contestant) Stop(d time.Duration) error {
	if c.child == nil {
		return nil
	}
	err := c.child.Stop(syscall.SIGTERM, d)
	var ended *process.EndedError
	if c.mortal && errors.As(err, &ended) && ended.State == "signal: terminated" {
		return nil
	}
	return Describe(err)
}

// Describe shortens the last output in an error of package process to the complaints of the process, which is a
// child of this program or a contestant. It returns other errors, and nil, unchanged.
func Describe(err error) error {
	var ended *process.EndedError
	if errors.As(err, &ended) {
		ended.Said = complaint(ended.Said)
	}
	return err
}

// complaint returns the message in a child's last line, which may be a line of a JSON log. A JSON line with a
// level below warning is no complaint.
func complaint(line string) string {
	line = strings.TrimPrefix(line, "penstock: ") // the name of the penstock program, and of this program
	var log struct {
		Level slog.Level
		Msg   string
	}
	switch err := json.Unmarshal([]byte(line), &log); {
	case err != nil:
		return line
	case log.Level < slog.LevelWarn:
		return ""
	}
	return log.Msg
}
