package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type endpointCmd struct {
	List   endpointListCmd   `cmd:"" default:"withargs" help:"List the endpoints: state, weight, sessions, and what was changed by hand."`
	Add    endpointAddCmd    `cmd:"" help:"Add an endpoint to an upstream, or undo its removal."`
	Remove endpointRemoveCmd `cmd:"" help:"Remove an endpoint: one of the file or of discovery until its line there changes. on_removed applies to its sessions."`
	Drain  endpointDrainCmd  `cmd:"" help:"Send an endpoint no more clients. Its sessions have drain_timeout, and its checks go on."`
	Maint  endpointMaintCmd  `cmd:"" help:"Take an endpoint out whatever its checks say: no clients, and no checks. Its sessions go on."`
	Ready  endpointReadyCmd  `cmd:"" help:"Send an endpoint clients again, after drain, maint or remove."`
	Weight endpointWeightCmd `cmd:"" help:"Set the weight of an endpoint."`
}

type endpointListCmd struct {
	adminFlags
	Upstream string `placeholder:"NAME" help:"The endpoints of this upstream alone."`
	JSON     bool   `name:"json" help:"Print JSON."`
}

// An upstreamEndpoint is an endpoint in the list.
type upstreamEndpoint struct {
	Upstream string `json:"upstream"`
	admin.Endpoint
}

// Run lists the endpoints of a running process.
func (c *endpointListCmd) Run(e *cli.Env) error {
	var st admin.Status
	err := c.ask(e, "endpoint", func(ctx context.Context, client *admin.Client) (err error) {
		st, err = client.Status(ctx)
		return err
	})
	if err != nil {
		return err
	}
	list, names, known := []upstreamEndpoint{}, []string{}, c.Upstream == ""
	for i := range st.Upstreams {
		u := &st.Upstreams[i]
		names = append(names, u.Name)
		if c.Upstream != "" && c.Upstream != u.Name {
			continue
		}
		known = true
		for j := range u.Endpoints {
			list = append(list, upstreamEndpoint{u.Name, u.Endpoints[j]})
		}
	}
	if !known {
		return fmt.Errorf("endpoint: there is no upstream %s: there are %s", display.Text(c.Upstream), display.Text(strings.Join(names, ", ")))
	}
	if c.JSON {
		return writeJSON(e.Stdout, list)
	}
	return writeEndpoints(e, list)
}

// writeEndpoints prints a table of endpoints.
func writeEndpoints(e *cli.Env, list []upstreamEndpoint) error {
	rows := [][]string{{"UPSTREAM", "ENDPOINT", "ADDRESS", "STATE", "WEIGHT", "SESSIONS", ""}}
	for i := range list {
		at := &list[i]
		sessions := strconv.FormatInt(at.Active, 10)
		if at.Max > 0 {
			sessions += " of " + strconv.FormatInt(at.Max, 10)
		}
		rows = append(rows, []string{at.Upstream, at.Name, at.Address, string(at.State), strconv.Itoa(at.Weight), sessions, at.notes()})
	}
	_, err := fmt.Fprint(e.Stdout, table(rows))
	return err
}

// notes says why an endpoint gets no clients, and what was changed by hand.
func (u *upstreamEndpoint) notes() string {
	notes := u.ByHand
	if why := u.Reason(); why != "" && u.State != admin.Draining && u.State != admin.Maint && u.State != admin.Removed {
		notes = append([]string{why}, notes...)
	}
	return strings.Join(notes, "; ")
}

// table aligns the columns of rows.
func table(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = display.Text(row[i])
			widths[i] = max(widths[i], len([]rune(row[i])))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-len([]rune(cell))+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// endpointArgs are the arguments of commands that change an endpoint that there is.
type endpointArgs struct {
	adminFlags
	saveFlag
	Upstream cli.Pair `arg:"" help:"The upstream; or UPSTREAM/ENDPOINT for both."`
	Endpoint string   `arg:"" help:"The endpoint, by its name or its address."`
}

// change makes a change and prints the result.
func (a *endpointArgs) change(e *cli.Env, what admin.EndpointVerb, weight int) error {
	return a.saveFlag.change(e, &a.adminFlags, &admin.EndpointChange{What: what, Upstream: string(a.Upstream), Endpoint: a.Endpoint, Weight: weight})
}

type endpointAddCmd struct {
	adminFlags
	saveFlag
	Upstream cli.Pair `arg:"" help:"The upstream; or UPSTREAM/ADDRESS for both."`
	Address  string   `arg:"" help:"Its address: host:port or unix:/path."`
	Name     string   `placeholder:"NAME" help:"Its name. (default: its address)"`
	Weight   *int     `placeholder:"N" help:"Its weight. (default: 1; with --save of one that was added by hand: as it is)"`
	Zone     string   `placeholder:"NAME" help:"Its zone."`

	Backup      bool   `help:"Use it only if no other endpoint is usable; see backup_when."`
	Connections *int64 `placeholder:"N" help:"Limit its concurrent sessions. (default: no limit)"`
}

// Run adds an endpoint.
func (c *endpointAddCmd) Run(e *cli.Env) error {
	change := &admin.EndpointChange{What: admin.EndpointAdd, Upstream: string(c.Upstream), Endpoint: c.Address, Name: c.Name, Weight: 1, Zone: c.Zone, Backup: c.Backup}
	if c.Connections != nil {
		if change.Connections = *c.Connections; change.Connections < 0 {
			return cli.Usagef("endpoint add: --connections %d: write 0 or more (see: penstock endpoint add --help)", change.Connections)
		}
	}
	switch {
	case c.Weight != nil && *c.Weight < 0:
		return cli.Usagef("endpoint add: --weight %d: write 0 or more (see: penstock endpoint add --help)", *c.Weight)
	case c.Weight != nil:
		change.Weight = *c.Weight
	case c.Save:
		change.Weight = unweighed
	}
	return c.change(e, &c.adminFlags, change)
}

type (
	endpointRemoveCmd struct{ endpointArgs }
	endpointDrainCmd  struct{ endpointArgs }
	endpointMaintCmd  struct{ endpointArgs }
	endpointReadyCmd  struct{ endpointArgs }
	endpointWeightCmd struct {
		endpointArgs
		Weight int `arg:"" help:"Its weight from now on; 0: no more clients."`
	}
)

// Run removes an endpoint.
func (c *endpointRemoveCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointRemove, 0) }

// Run drains an endpoint.
func (c *endpointDrainCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointDrain, 0) }

// Run has an endpoint be in maintenance.
func (c *endpointMaintCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointMaint, 0) }

// Run has an endpoint get clients again.
func (c *endpointReadyCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointReady, 0) }

// Run changes the weight of an endpoint.
func (c *endpointWeightCmd) Run(e *cli.Env) error {
	if c.Weight < 0 {
		return cli.Usagef("endpoint weight: %d is not a weight: write 0 or more (see: penstock endpoint weight --help)", c.Weight)
	}
	return c.change(e, admin.EndpointWeight, c.Weight)
}

// writeChanged prints the result of a change of an endpoint.
func writeChanged(e *cli.Env, upstream string, done *admin.EndpointChanged) error {
	var text strings.Builder
	of := display.Text(upstream + "/" + done.Endpoint)
	if done.From == done.To {
		fmt.Fprintf(&text, "endpoint %s: %s, as before\n", of, display.Text(done.To))
	} else {
		fmt.Fprintf(&text, "endpoint %s: %s → %s\n", of, display.Text(done.From), display.Text(done.To))
	}
	if done.Taking == 0 {
		fmt.Fprintf(&text, "no endpoint of %s takes clients any more\n", display.Text(upstream))
	}
	if gone := done.To == string(admin.Removed) || done.To == noEndpoint; !gone && done.Weight == 0 {
		fmt.Fprintf(&text, "it gets no clients: its weight is 0, until penstock endpoint weight %s N\n", of)
	}
	if done.Unkept != "" && done.From != done.To {
		fmt.Fprintf(&text, "This change is lost at a restart: %s\n", display.Text(done.Unkept))
	}
	_, err := fmt.Fprint(e.Stdout, text.String())
	return err
}
