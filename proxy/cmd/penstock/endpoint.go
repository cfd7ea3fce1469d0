package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/rollback"
)

type endpointCmd struct {
	List   endpointListCmd   `cmd:"" default:"withargs" help:"List the endpoints with their states, weights, sessions and changes by hand."`
	Add    endpointAddCmd    `cmd:"" help:"Add an endpoint to an upstream, or undo its removal."`
	Remove endpointRemoveCmd `cmd:"" help:"Remove an endpoint. An endpoint from the file or from discovery stays removed until its line there changes. The key on_removed says what happens to its sessions."`
	Drain  endpointDrainCmd  `cmd:"" help:"Send an endpoint no more clients. Its sessions continue for drain_timeout. Then the remaining sessions are reset. Its health checks continue."`
	Maint  endpointMaintCmd  `cmd:"" help:"Take an endpoint out for maintenance: it gets no clients and no health checks. Its sessions continue."`
	Ready  endpointReadyCmd  `cmd:"" help:"Send an endpoint clients again, after drain, maint or remove."`
	Weight endpointWeightCmd `cmd:"" help:"Set the weight of an endpoint."`
}

type endpointListCmd struct {
	adminFlags
	Upstream string `placeholder:"NAME" help:"List only the endpoints of this upstream."`
	JSON     bool   `name:"json" help:"Print JSON."`
}

// An upstreamEndpoint is an endpoint in the list.
type upstreamEndpoint struct {
	Upstream string `json:"upstream"`
	admin.Endpoint
}

func (c *endpointListCmd) Run(e *cli.Env) error {
	return show(e, c, "endpoint", c.JSON, func(ctx context.Context, client *admin.Client) ([]upstreamEndpoint, error) {
		st, err := client.Status(ctx)
		if err == nil && c.Upstream != "" {
			st.Upstreams, err = only(st.Upstreams, "upstream", c.Upstream, func(u admin.Upstream) string { return u.Name })
		}
		list := []upstreamEndpoint{}
		for i := range st.Upstreams {
			for j := range st.Upstreams[i].Endpoints {
				list = append(list, upstreamEndpoint{st.Upstreams[i].Name, st.Upstreams[i].Endpoints[j]})
			}
		}
		return list, err
	}, writeEndpoints)
}

func writeEndpoints(w io.Writer, list *[]upstreamEndpoint) error {
	rows := [][]string{{"upstream", "endpoint", "address", "state", "weight", "sessions", ""}}
	for i := range *list {
		at := &(*list)[i]
		sessions := strconv.FormatInt(at.Active, 10)
		sessions += when(at.Max > 0, " of "+strconv.FormatInt(at.Max, 10))
		rows = append(rows, []string{at.Upstream, at.Name, at.Address, string(at.State), strconv.Itoa(at.Weight), sessions, at.notes()})
	}
	return writeTable(w, rows, "")
}

// notes says why an endpoint gets no clients, whether it is a backup, and what was changed by hand.
func (u *upstreamEndpoint) notes() string {
	notes := slices.Clone(u.ByHand)
	if !u.SlowUntil.IsZero() {
		notes = append(notes, "slow start until "+u.SlowUntil.Local().Format(time.TimeOnly))
	}
	if u.Backup {
		notes = append([]string{"backup"}, notes...)
	}
	why := u.Reason()
	said := slices.ContainsFunc(u.ByHand, func(change string) bool { return strings.HasPrefix(change, why) })
	if why != "" && !said && u.State != admin.Draining && u.State != admin.Maint && u.State != admin.Removed {
		notes = append([]string{why}, notes...)
	}
	return strings.Join(notes, "; ")
}

// endpointArgs are the arguments of commands that change an existing endpoint.
type endpointArgs struct {
	adminFlags
	saveFlag
	Upstream cli.Pair `arg:"" help:"The upstream, or UPSTREAM/ENDPOINT in place of both arguments."`
	Endpoint string   `arg:"" help:"The endpoint, by its name or its address."`
}

// change makes a change, and prints the result.
func (a *endpointArgs) change(e *cli.Env, what admin.EndpointVerb, weight int) error {
	return a.saveFlag.change(e, &a.adminFlags, &admin.EndpointChange{What: what, Upstream: string(a.Upstream), Endpoint: absoluteSocket(a.Endpoint), Weight: weight})
}

type endpointAddCmd struct {
	adminFlags
	saveFlag
	Upstream cli.Pair `arg:"" help:"The upstream, or UPSTREAM/ADDRESS in place of both arguments."`
	Address  string   `arg:"" help:"Its address: host:port or unix:/path."`
	Name     string   `placeholder:"NAME" help:"Its name. (default: its address)"`
	Weight   *int     `placeholder:"N" help:"Its weight. (default: 1. With --save, an endpoint that was added by hand keeps its weight)"`
	Zone     string   `placeholder:"NAME" help:"Its zone."`

	Backup      bool   `help:"Use it only if no other endpoint is usable (see the key backup_when)."`
	Connections *int64 `placeholder:"N" help:"Limit its concurrent sessions. (default: no limit)"`
}

func (c *endpointAddCmd) Run(e *cli.Env) error {
	change := &admin.EndpointChange{What: admin.EndpointAdd, Upstream: string(c.Upstream), Endpoint: absoluteSocket(c.Address), Name: c.Name, Weight: 1, Zone: c.Zone, Backup: c.Backup}
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

// absoluteSocket makes the path of a unix socket absolute, as the process knows it.
func absoluteSocket(address string) string {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix || path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, "@") {
		return address
	}
	return "unix:" + absolute(path)
}

type (
	endpointRemoveCmd struct{ endpointArgs }
	endpointDrainCmd  struct{ endpointArgs }
	endpointMaintCmd  struct{ endpointArgs }
	endpointReadyCmd  struct{ endpointArgs }
	endpointWeightCmd struct {
		endpointArgs
		Weight weight `arg:"" help:"The new weight. An endpoint of weight 0 gets no more clients."`
	}
)

func (c *endpointRemoveCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointRemove, 0) }

func (c *endpointDrainCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointDrain, 0) }

func (c *endpointMaintCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointMaint, 0) }

// Run makes an endpoint get clients again.
func (c *endpointReadyCmd) Run(e *cli.Env) error { return c.change(e, admin.EndpointReady, 0) }

func (c *endpointWeightCmd) Run(e *cli.Env) error {
	return c.change(e, admin.EndpointWeight, int(c.Weight))
}

type weight int

func (w *weight) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil || n > lb.MaxWeight {
		return fmt.Errorf("%q: write a whole number, 0 to %d", text, lb.MaxWeight)
	}
	*w = weight(n)
	return nil
}

func writeChanged(e *cli.Env, upstream string, done *admin.EndpointChanged) error {
	var text strings.Builder
	of := display.Text(upstream + "/" + done.Endpoint)
	weightless := done.To != string(admin.Removed) && done.Weight == 0
	still := weightless && done.From == done.To && done.To == config.Ready
	switch {
	case still:
		fmt.Fprintf(&text, "endpoint %s still gets no clients, because its weight is 0: penstock endpoint weight %[1]s N changes the weight", of)
	case done.From == done.To:
		fmt.Fprintf(&text, "endpoint %s: %s, as before", of, display.Text(done.To))
	default:
		fmt.Fprintf(&text, "endpoint %s: %s → %s", of, display.Text(done.From), display.Text(done.To))
	}
	if ms := done.ResetAfterMs; ms != nil && done.Sessions > 0 {
		text.WriteString(itsReset(done.Sessions, done.Sessions, time.Duration(*ms)*time.Millisecond))
	}
	text.WriteByte('\n')
	if done.Taking == 0 {
		fmt.Fprintf(&text, "no endpoint of %s takes clients now%s\n", display.Text(upstream), display.Text(when(done.Others != "", ": "+done.Others)))
	}
	if weightless && !still {
		fmt.Fprintf(&text, "%s gets no clients, because its weight is 0: penstock endpoint weight %[1]s N changes the weight\n", of)
	}
	text.WriteString(unkept(done.Unkept))
	_, err := fmt.Fprint(e.Stdout, text.String())
	return err
}

// itsReset says when n of all sessions of a part are reset, because it gets no more clients.
func itsReset(n, all int64, within time.Duration) string {
	its := "its " + plural(n, "session is", "sessions are")
	if n < all {
		its = plural(n, "of its sessions is", "of its sessions are")
	}
	if within <= 0 {
		return "; " + its + " reset at once"
	}
	return fmt.Sprintf("; %s reset after %s (drain_timeout)", its, config.ShowDuration(within))
}

// unkept says why a change is lost at a restart; "": it is not.
func unkept(why string) string {
	switch why {
	case "":
		return ""
	case "no state_file":
		return "a reload keeps this; without a state_file a restart loses it\n"
	}
	return fmt.Sprintf("a reload keeps this, a restart loses it: %s\n", display.Text(why))
}

// saveFlag also writes a change of an endpoint to the file.
type saveFlag struct {
	Save bool `help:"Also write the change to the configuration file, with the permissions of the user who runs this command, and reload."`
}

// change makes a change in the running process and, with --save, in the file.
func (s saveFlag) change(e *cli.Env, at *adminFlags, change *admin.EndpointChange) error {
	if s.Save && at.Config == nil && at.address(e) != "" {
		return cli.Usagef("endpoint: --save and --admin: add --config FILE, or the process at that address would choose the file that is changed")
	}
	var done admin.EndpointChanged
	var saved string
	err := at.ask(e, "endpoint", func(ctx context.Context, client *admin.Client) (err error) {
		if s.Save {
			done, saved, err = saveChange(ctx, client, e.Environment(), at.Config, change)
			return err
		}
		done, err = client.ChangeEndpoint(ctx, change)
		return err
	})
	if err != nil {
		return err
	}
	if saved != "" {
		done.Unkept = ""
	}
	if err := writeChanged(e, change.Upstream, &done); err != nil || saved == "" {
		return err
	}
	return say(e.Stdout, "saved in %s\n", display.Text(saved))
}

const unweighed = -1

// saveChange makes a change in the file and in the running process, or in neither. It returns the file.
func saveChange(ctx context.Context, client *admin.Client, env config.Env, given *string, change *admin.EndpointChange) (done admin.EndpointChanged, saved string, err error) {
	plan, err := client.Plan(ctx, "")
	if err != nil {
		return done, "", notSaved(err)
	}
	lock, err := lockFile(ctx, plan.Path, lockPatience)
	if err != nil {
		return done, "", notSaved(err)
	}
	defer lock.release()
	if _, err := savable(ctx, client, given); err != nil {
		return done, "", err
	}
	was, err := endpointOf(ctx, client, change)
	if err != nil {
		return done, "", err
	}
	edit, err := editOf(change, &was)
	if err != nil {
		return done, "", notSaved(err)
	}
	edited, err := config.EditEndpoint(plan.Path, env, edit)
	if err != nil {
		return done, "", notSaved(err)
	}
	path, err := savable(ctx, client, given) // again: what was edited had no other changes; writeEdited sees if a file changes from now on
	switch {
	case err != nil:
		return done, "", err
	case path != plan.Path:
		return done, "", notSaved(fmt.Errorf("the process has another file now, %s: try again", path))
	}
	if !sameFile(path, edited.Path) { // it is included, perhaps by the file of another process too
		also, err := lockFile(ctx, edited.Path, lockPatience)
		if err != nil {
			return done, "", notSaved(err)
		}
		defer also.release()
	}
	differs := !bytes.Equal(edited.Before, edited.After)
	if differs {
		if err := lock.writeEdited(ctx, client, path, env, edited); err != nil {
			return done, "", err
		}
		defer func() {
			if err != nil {
				err = fmt.Errorf("%s has the change, and was reloaded, but an earlier change by hand may still be in force: %w", edited.Path, err)
			}
		}()
	}
	if differs && (edit.Add != nil || edit.Remove) {
		now, err := endpointOf(ctx, client, change)
		weight := 0
		if now.Endpoint != nil {
			weight = now.Weight
		}
		done = admin.EndpointChanged{Endpoint: edit.Name(), From: was.value(change.What), To: now.value(change.What), Weight: weight}
		if edit.Remove { // it may drain still, or be gone
			done.To = string(admin.Removed)
		}
		done.Taking, done.Others = now.of.Taking(done.Endpoint)
		return done, edited.Path, err
	}
	done, err = client.ChangeEndpoint(ctx, change) // ends an earlier change by hand to the same line
	if differs && err == nil {
		done.From = was.value(change.What)
	}
	return done, edited.Path, err
}

func notSaved(err error) error { return fmt.Errorf("nothing was changed: %w", err) }

// savable returns the path of the file in force. It fails if a reload of the file would now change anything else.
func savable(ctx context.Context, client *admin.Client, given *string) (string, error) {
	plan, err := client.Plan(ctx, "")
	if err != nil {
		return "", notSaved(err)
	}
	generations, err := client.Generations(ctx)
	if err != nil {
		return "", notSaved(err)
	}
	if given != nil {
		if abs, err := filepath.Abs(*given); err == nil && abs != plan.Path && !sameFile(abs, plan.Path) {
			return "", fmt.Errorf("nothing was changed: the process has the configuration %s, not %s: write --config %[1]s", plan.Path, abs)
		}
	}
	switch {
	case generations.Pending != nil:
		return "", fmt.Errorf("nothing was changed: generation %d waits to be confirmed: run penstock confirm or penstock rollback first", generations.Pending.Generation)
	case len(plan.Changes) > 0:
		return "", fmt.Errorf("nothing was changed: %s has other changes that are not in force (%s): reload first, or leave --save out", plan.Path, plan.Changes[0].What)
	}
	return plan.Path, nil
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// lockPatience is how long a command waits for other commands that write the file. Their reloads may take some seconds.
const lockPatience = time.Minute

// A fileLock lets one command with --save at a time edit a file. It holds a flock(2) of the file, and of the files that
// replace it. A lock of the directory would hold up a reload that opens a unix socket there.
type fileLock struct{ files []*os.File }

// lockFile waits until no other command edits a file.
func lockFile(ctx context.Context, path string, patience time.Duration) (*fileLock, error) {
	for late := time.After(patience); ; {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		l := &fileLock{}
		err = l.hold(f)
		old := replaced(f)
		_ = f.Close() // l has the lock
		if err == nil && !old {
			return l, nil
		}
		l.release()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		select {
		case <-late:
			return nil, fmt.Errorf("another command has locked %s for %v: end it (fuser -v %[1]s shows it), or try again", path, patience)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// hold also takes the lock of this file. Some network file systems have no locks. There another command's change is
// only noticed just before the file is replaced.
func (l *fileLock) hold(f *os.File) error {
	fd, err := sys.Dup(int(f.Fd()))
	if err != nil {
		return err
	}
	l.files = append(l.files, os.NewFile(uintptr(fd), f.Name()))
	switch err := sys.Flock(fd, sys.LOCK_EX|syscall.LOCK_NB); err {
	case syscall.EBADF, syscall.ENOLCK, syscall.EOPNOTSUPP:
		return nil
	default:
		return err
	}
}

// replaced reports whether the name of a file has another file now.
func replaced(f *os.File) bool {
	is, err := f.Stat()
	named, err2 := os.Stat(f.Name())
	return err != nil || err2 != nil || !os.SameFile(is, named)
}

func (l *fileLock) release() {
	for _, f := range l.files {
		_ = f.Close() // nothing was written through it
	}
}

// writeEdited replaces a file of the configuration at path, and makes the process reload. If the process refuses, or another
// file has changed meanwhile, it restores the file.
func (l *fileLock) writeEdited(ctx context.Context, client *admin.Client, path string, env config.Env, e *config.Edited) error {
	if err := l.replace(e.Path, e.Before, e.After); err != nil {
		return notSaved(err)
	}
	if now, problems := config.Load(path, env); len(problems) > 0 || len(config.Diff(e.Next, now)) > 0 {
		err := fmt.Errorf("another program changed a file of %s meanwhile: look at it, and try again", path)
		if back := l.replace(e.Path, e.After, e.Before); back != nil {
			return fmt.Errorf("%s has the change, which is not in force, and could not be restored: %w: %w", e.Path, err, back)
		}
		return notSaved(err)
	}
	_, err := client.Reload(ctx, rollback.Options{})
	if refused := (*admin.Refusal)(nil); errors.As(err, &refused) {
		if back := l.replace(e.Path, e.After, e.Before); back != nil {
			return fmt.Errorf("%w; the former %s was not written back: %w", err, e.Path, back)
		}
		return fmt.Errorf("the reload was refused, and %s is as it was: %w", e.Path, err)
	}
	if err != nil {
		return fmt.Errorf("%s has the change, but it is not known whether the change is in force: %w", e.Path, err)
	}
	return nil
}

// replace replaces the contents of a file atomically if they are as before, and keeps its mode, owner and
// attributes. When it returns nil the contents are on the disk.
func (l *fileLock) replace(path string, before, contents []byte) error {
	was, err := os.Open(path)
	if err != nil {
		return err
	}
	defer was.Close()
	info, err := was.Stat()
	if err != nil {
		return err
	}
	p, err := file.At(path)
	if err != nil {
		return err
	}
	err = p.Edit(before, contents, func(f *os.File) error {
		err := errors.Join(l.hold(f), keepOwner(f, info))
		if err == nil {
			err = keepAttributes(f, was)
		}
		if err == nil { // last, because without the ACL the mode would let in the group
			err = f.Chmod(info.Mode().Perm())
		}
		return err
	})
	return errors.Join(err, p.Close())
}

// keepOwner gives a file the owner and the group of another file. A group without rights of its own may get lost.
func keepOwner(f *os.File, of fs.FileInfo) error {
	was, ok := of.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is := info.Sys().(*syscall.Stat_t)
	if is.Uid == was.Uid && is.Gid == was.Gid {
		return nil
	}
	err = f.Chown(int(was.Uid), int(was.Gid))
	mode := of.Mode().Perm()
	switch {
	case !errors.Is(err, fs.ErrPermission):
		return err
	case is.Uid == was.Uid && mode>>3&7 == mode&7:
		return nil
	}
	return fmt.Errorf("the file belongs to uid %d and gid %d, and has mode %04o; uid %d may not make such a file: run this command as root or with that user and group, or chown the file", was.Uid, was.Gid, mode, is.Uid)
}

// keepAttributes gives a file the ACL, the labels and the user's attributes of another file.
func keepAttributes(f, of *os.File) error {
	const acl = "system.posix_acl_access" // acl(5)
	kept := func(name string) bool {
		switch name {
		case "security.ima", "security.evm": // they are about the contents
			return false
		}
		return name == acl || strings.HasPrefix(name, "security.") || strings.HasPrefix(name, "user.")
	}
	was, err := sys.Attributes(int(of.Fd()), kept)
	if err != nil {
		return err
	}
	is, err := sys.Attributes(int(f.Fd()), kept)
	if err != nil {
		return err
	}
	if _, inherited := is[acl]; inherited && was[acl] == nil {
		err = sys.SetAttribute(int(f.Fd()), acl, nil)
	}
	for name, value := range was {
		if now, has := is[name]; err == nil && (!has || !bytes.Equal(now, value)) {
			err = sys.SetAttribute(int(f.Fd()), name, value)
		}
	}
	if err != nil {
		return fmt.Errorf("the file that replaces it cannot have the same attributes: %w: edit the file by hand, and reload", err)
	}
	return nil
}

// editOf returns the edit of the file that makes a change. An endpoint that was added by hand is not in the file yet:
// the edit adds it as it is in force, with the change.
func editOf(c *admin.EndpointChange, now *endpointNow) (*config.EndpointEdit, error) {
	edit := &config.EndpointEdit{Upstream: c.Upstream, Endpoint: c.Endpoint}
	switch {
	case c.What == admin.EndpointRemove:
		edit.Remove = true
		return edit, nil
	case now.added:
		e, err := now.with(c)
		edit.Add = e
		return edit, err
	case c.What == admin.EndpointAdd:
		if c.Weight == unweighed {
			c.Weight = 1
		}
		e, err := config.NewEndpoint(&config.EndpointKeys{Address: c.Endpoint, Name: c.Name, Zone: c.Zone, Weight: c.Weight, Backup: c.Backup, Connections: c.Connections})
		edit.Add = &e
		return edit, err
	case now.Endpoint != nil && now.State == admin.Removed && c.What != admin.EndpointReady: // a changed line would bring it back
		return nil, fmt.Errorf("endpoint %s of %s was removed by hand: run penstock endpoint ready %[2]s %[1]s first", now.Name, c.Upstream)
	case c.What == admin.EndpointWeight:
		edit.Weight = &c.Weight
	default:
		edit.State = string(c.What)
	}
	return edit, nil
}

// noEndpoint is shown for an endpoint that does not exist.
const noEndpoint = "none"

type endpointNow struct {
	*admin.Endpoint      // nil if it does not exist
	added           bool // by hand
	of              admin.Upstream
}

// with returns an endpoint that was added by hand, with a change, as it will be in the file.
func (n *endpointNow) with(c *admin.EndpointChange) (*config.Endpoint, error) {
	keys, mode := config.EndpointKeys{Address: n.Address, Name: n.Name, Zone: n.Zone, Weight: n.Weight, Backup: n.Backup, Connections: n.Max}, stateWord(n.Endpoint)
	switch c.What {
	case admin.EndpointAdd:
		if given, err := config.NewEndpoint(&config.EndpointKeys{Address: c.Endpoint, Name: c.Name, Weight: 1}); err != nil || given.Name != n.Name || given.Address.String() != n.Address {
			return nil, fmt.Errorf("upstream %s has the endpoint %s at %s, which was added by hand: write endpoint add %[1]s %[3]s%[4]s, or remove that endpoint first", c.Upstream, n.Name, n.Address, n.nameFlag())
		}
		if c.Weight != unweighed {
			keys.Weight = c.Weight
		}
		keys.Zone, keys.Backup, keys.Connections = cmp.Or(c.Zone, keys.Zone), c.Backup || keys.Backup, cmp.Or(c.Connections, keys.Connections)
	case admin.EndpointWeight:
		keys.Weight = c.Weight
	default:
		mode = string(c.What)
	}
	if keys.Name == n.Address {
		keys.Name = ""
	}
	e, err := config.NewEndpoint(&keys)
	e.State = mode
	return &e, err
}

func (n *endpointNow) nameFlag() string {
	return when(n.Name != n.Address, " --name "+n.Name)
}

// value returns the property that a change is about.
func (n *endpointNow) value(what admin.EndpointVerb) string {
	if n.Endpoint == nil {
		return noEndpoint
	}
	word := stateWord(n.Endpoint)
	switch {
	case what == admin.EndpointWeight:
		return strconv.Itoa(n.Weight)
	case what == admin.EndpointAdd: // as the process says it, see addedText of package server
		text := fmt.Sprintf("%s, weight %d", n.Address, n.Weight) + when(n.Backup, ", backup") + when(n.Max > 0, fmt.Sprintf(", connections %d", n.Max))
		return text + when(word != config.Ready, ", "+word)
	}
	return word
}

func endpointOf(ctx context.Context, client *admin.Client, c *admin.EndpointChange) (n endpointNow, err error) {
	st, err := client.Status(ctx)
	if err == nil {
		st.Upstreams, err = only(st.Upstreams, "upstream", c.Upstream, func(u admin.Upstream) string { return u.Name })
	}
	for _, n.of = range st.Upstreams {
		for j := range n.of.Endpoints {
			e := &n.of.Endpoints[j]
			named := e.Name == c.Endpoint || e.Address == c.Endpoint || c.Name != "" && e.Name == c.Name
			if named && (n.Endpoint == nil || e.State != admin.Removed) { // an endpoint that drains after its removal may have the same name
				n.Endpoint = e
			}
		}
	}
	n.added = n.Endpoint != nil && n.State != admin.Removed && slices.ContainsFunc(st.Live, func(l admin.LiveChange) bool {
		return l.Kind == string(state.EndpointAdded) && l.Upstream == c.Upstream && l.Endpoint == n.Name
	})
	return n, err
}

// stateWord returns the command that sets an endpoint's state.
func stateWord(e *admin.Endpoint) string {
	switch e.State {
	case admin.Draining:
		return config.Drain
	case admin.Maint, admin.Removed:
		return string(e.State)
	}
	return config.Ready
}
