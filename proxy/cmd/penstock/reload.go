package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/scrape"
	"github.com/penstock/penstock/proxy/rollback"
)

type reloadCmd struct {
	processFlags
	Confirm    *cli.Timeout `placeholder:"TIME" help:"Return to the previous configuration if penstock confirm is not run within this time, such as 2m."`
	RollbackIf []string     `sep:"none" placeholder:"COUNTER>N" help:"Return to the previous configuration immediately if this counter rises by more than N within the time of --confirm, such as 'refused>0'."`
}

func (c *reloadCmd) Run(e *cli.Env) error {
	var o rollback.Options
	if c.Confirm != nil { // --confirm 0 must not make the reload permanent
		o.Confirm = c.Confirm.Duration()
	}
	if c.Confirm != nil && rollback.CheckConfirm(o.Confirm) != nil {
		return cli.Usagef("reload: --confirm: write a time from 1s to 24h, such as 2m (see: penstock reload --help)")
	}
	switch {
	case len(c.RollbackIf) > 1:
		return cli.Usagef("reload: --rollback-if watches one counter: write it once (see: penstock reload --help)")
	case len(c.RollbackIf) == 1: // an empty bound must not mean no bound
		o.RollbackIf = c.RollbackIf[0]
		if o.Confirm == 0 {
			return cli.Usagef("reload: --rollback-if needs --confirm, which says how long the counter is watched: write for example --confirm 2m (see: penstock reload --help)")
		}
		if _, err := rollback.ParseBound(o.RollbackIf); err != nil {
			return cli.Usagef("reload: %w (see: penstock reload --help)", err)
		}
	}
	return c.ask(e, "reload", func(ctx context.Context, client *admin.Client) error {
		if err := c.readsNamed(ctx, client); err != nil {
			return err
		}
		done, err := client.Reload(ctx, o)
		if err != nil {
			return err
		}
		return errors.Join(writeReloaded(e.Stdout, done, o.Confirm != 0), writeFaults(ctx, client, e.Stdout))
	})
}

// writeFaults names the upstreams for which discovery has no endpoints after a change, and says what is wrong
// with the file of changes by hand.
func writeFaults(ctx context.Context, client *admin.Client, w io.Writer) error {
	s, err := client.Status(ctx)
	if err != nil {
		return nil // the change itself has been made
	}
	for i := range s.Upstreams {
		u := &s.Upstreams[i]
		there := slices.ContainsFunc(u.Endpoints, func(e admin.Endpoint) bool { return e.State != admin.Removed })
		if d := u.Discovery; d != nil && !there {
			err = errors.Join(err, say(w, "upstream %s has no endpoints: %s\n", u.Name, display.Text(d.Kind+" "+d.From+when(d.Denied != "", ": "+d.Denied))))
		}
	}
	if f := s.StateFile; f != nil && f.Problem != "" {
		err = errors.Join(err, say(w, "the file of changes by hand: %s\n", display.Text(f.Problem)))
	}
	return err
}

// readsNamed returns an error if the user has named a file that is not the file of the process: the process would read
// its own file. Where this user cannot see the file of the process, nothing is compared.
func (c *reloadCmd) readsNamed(ctx context.Context, client *admin.Client) error {
	named := c.path
	if c.Config != nil {
		named = *c.Config
	}
	if named == "" {
		return nil
	}
	s, err := client.Status(ctx)
	if err != nil || s.File == "" || s.File == absolute(named) {
		return err
	}
	pid := client.Peer()
	if pid != s.PID { // over TCP, or from a listener that the process has inherited
		pid, _, _ = processOf("/proc", s.File)
	}
	if pid != s.PID { // it runs elsewhere, or in another PID namespace
		return nil
	}
	reads, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, s.File)) // it may have another mount namespace
	if errors.Is(err, os.ErrPermission) {
		reads, err = os.Stat(s.File)
	}
	if err != nil {
		return nil
	}
	if has, err := os.Stat(named); err != nil || os.SameFile(has, reads) {
		return nil
	}
	return fmt.Errorf("the process reads %s, not %s: copy %[2]s there first, or run penstock reload %[1]s", s.File, named)
}

// writeReloaded prints the changes of a reload. confirm says whether it had to be confirmed.
func writeReloaded(w io.Writer, done admin.Reloaded, confirm bool) error {
	var err error
	switch {
	case len(done.Changes) > 0:
		err = writeInForce(w, done.Generation, "is in force", done.Changes)
	case confirm:
		_, err = fmt.Fprintf(w, "the configuration is unchanged: generation %d stays in force, and nothing waits to be confirmed\n", done.Generation)
	default:
		_, err = fmt.Fprintf(w, "the configuration is unchanged: generation %d stays in force\n", done.Generation)
	}
	writeLive(w, "changes by hand that ended", done.Ended, because)
	if p := done.Pending; p != nil && err == nil {
		_, err = fmt.Fprintf(w, "run penstock confirm --generation %d before %s, or it is rolled back%s\n", p.Generation, p.Until.Local().Format(time.TimeOnly), display.Text(boundWords(p.RollbackIf)))
	}
	return err
}

func writeInForce(w io.Writer, generation int, is string, changes []string) error {
	for _, line := range changes {
		fmt.Fprintf(w, "  %s\n", display.Text(line))
	}
	return say(w, "generation %d %s: %s\n", generation, is, count(len(changes), "change"))
}

func boundWords(bound string) string {
	return when(bound != "", "; at once if "+bound)
}

type confirmCmd struct {
	processFlags
	Generation *int `placeholder:"N" help:"Confirm only this generation, as penstock reload has printed it. (default: the pending generation)"`
}

func (c *confirmCmd) Run(e *cli.Env) error {
	number := 0
	if c.Generation != nil {
		if number = *c.Generation; number < 1 {
			return cli.Usagef("confirm: --generation %d: write 1 or more (see: penstock confirm --help)", number)
		}
	}
	return show(e, c, "confirm", false, func(ctx context.Context, client *admin.Client) (admin.Outcome, error) {
		return client.Confirm(ctx, number)
	}, func(w io.Writer, now *admin.Outcome) error {
		return say(w, "generation %d is confirmed\n", now.Generation)
	})
}

type rollbackCmd struct {
	processFlags
	To   *int `placeholder:"N" help:"Return to this generation. (default: the previous generation)"`
	List bool `help:"Only list the generations that a rollback can return to, with their changes."`
}

func (c *rollbackCmd) Run(e *cli.Env) error {
	to := 0
	switch {
	case c.List && c.To != nil:
		return cli.Usagef("rollback: --list only lists: leave out --to or --list (see: penstock rollback --help)")
	case c.To != nil && *c.To < 1:
		return cli.Usagef("rollback: --to %d: write 1 or more (see: penstock rollback --help)", *c.To)
	case c.To != nil:
		to = *c.To
	}
	if c.List {
		return show(e, c, "rollback", false, func(ctx context.Context, client *admin.Client) (rollback.Status, error) {
			return client.Generations(ctx)
		}, writeGenerations)
	}
	return c.ask(e, "rollback", func(ctx context.Context, client *admin.Client) error {
		done, err := client.Rollback(ctx, to)
		if err != nil {
			return err
		}
		return errors.Join(writeRolledBack(e.Stdout, &done), writeFaults(ctx, client, e.Stdout))
	})
}

func writeRolledBack(w io.Writer, done *admin.RolledBack) error {
	err := writeInForce(w, done.Generation, "is in force again", done.Changes)
	writeLive(w, "changes by hand that ended", done.Ended, because)
	writeLive(w, "changes by hand that are in force again", done.Restored, because)
	if r := done.Refused; r != nil && err == nil {
		_, err = fmt.Fprintf(w, "%s still has generation %d: the next reload or start brings that generation back. penstock plan shows the difference\n", display.Text(r.Path), r.Generation)
	}
	return err
}

func writeGenerations(w io.Writer, s *rollback.Status) error {
	t := new(statusText)
	for i := range s.History {
		r := &s.History[i]
		t.row("generation", strconv.Itoa(r.Generation), string(r.State), fmt.Sprintf("%s, by %s", r.At.Local().Format(time.DateTime), r.By))
		if r.Why != "" {
			t.note("%s: %s", r.State, r.Why)
		}
		for _, line := range r.Changes {
			t.note("%s", line)
		}
	}
	return t.write(w, nil, "")
}

// hangup reloads the configuration on SIGHUP.
func (r *daemon) hangup() {
	err := rollback.ErrClosed
	select {
	case <-r.opened:
		_, err = r.load(context.Background(), rollback.Options{By: "SIGHUP"}, false, nil)
	case <-r.over:
	}
	if errors.Is(err, rollback.ErrClosed) { // load logs the other errors
		r.log.Warn("the reload was refused, nothing was changed", "by", "SIGHUP", "error", err)
	}
}

// take waits for the turn to read and apply the configuration: configurations are applied in the order in which they
// are read.
func (r *daemon) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("another reload is under way: %w", context.Cause(ctx))
	case <-r.over:
		return rollback.ErrClosed
	}
}

// Reload reads the configuration again, and applies it even if it is unchanged.
func (r *daemon) Reload(ctx context.Context, o rollback.Options) (done admin.Reloaded, err error) {
	done.Ended = []admin.LiveChange{}
	now, err := r.load(ctx, o, false, &done)
	if err != nil {
		return done, err
	}
	done.Generation, done.Changes, done.Pending = now.Generation, now.Changes, now.Pending
	return done, nil
}

// An effect is an applied configuration, with the changes by hand that it has ended and restored.
type effect struct {
	cfg             *config.Config
	ended, restored []admin.LiveChange
}

// load reads and applies the configuration. With unlessSame it does nothing if the configuration equals the last one
// read: it may have been rolled back for a reason. If done is not nil, load stores in it the changes by hand that it
// has ended.
func (r *daemon) load(ctx context.Context, o rollback.Options, unlessSame bool, done *admin.Reloaded) (now rollback.Installed, err error) {
	if err := r.take(ctx); err != nil {
		return now, err
	}
	defer func() { <-r.turn }()
	r.notify(r.notifier.Reloading())
	defer func() { r.notify(r.notifier.Ready(r.lineAfter(err))) }()
	defer giveBack()()
	tried := true
	defer func() {
		r.logRefused(o.By, err)
		if !errors.Is(err, rollback.ErrOptions) && !errors.Is(err, rollback.ErrClosed) {
			r.onDisk.reloaded(o.By, err)
		}
		if tried {
			r.measured.reloaded(err)
		}
		if err != nil {
			r.remakeAdmin(ctx)
		}
	}()
	defer widen(r.env)()
	inForce, _ := r.keeper.Current()
	print, _ := fingerprint(inForce, r.source.name()) // before the file is read; if it differs, the next status reads the file again
	to, err := r.source.load()
	r.onDisk.read(inForce, print, stateOf(inForce, to, err), err)
	if err != nil {
		return now, err
	}
	if unlessSame && len(config.Diff(r.read, to)) == 0 {
		tried = false
		return now, nil
	}
	before := r.read
	r.read = to
	r.next = &readFile{cfg: to, print: print}
	logWarnings(r.log, to.Warnings)
	r.tells = done != nil
	if now, err = r.keeper.Apply(ctx, to, o); err == nil && done != nil {
		done.Ended, now.Changes = r.applied.ended, r.told(now.Changes)
	}
	if errors.Is(err, rollback.ErrPending) {
		r.read = before // watch tries the file again when nothing waits any more
	}
	return now, err
}

// muchGarbage is how much the heap may grow while a large file is read.
const muchGarbage = 32 << 20

// giveBack returns a function that gives memory back to the kernel if the process holds much more than at the call of
// giveBack.
func giveBack() func() {
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapSys - m.HeapReleased
	}
	before := held()
	return func() {
		if held() > before+muchGarbage {
			debug.FreeOSMemory()
		}
	}
}

// packed keeps a configuration that is not in force as text, which takes at most a tenth of the memory. The keeper
// calls it.
func packed(cfg *config.Config) func() (*config.Config, error) {
	if kept := cfg.Keep(); kept != nil {
		return kept.Load
	}
	return func() (*config.Config, error) { return cfg, nil }
}

// changesBetween returns the changes from one configuration to another as lines. The keeper calls it in its turn.
func (r *daemon) changesBetween(from, to *config.Config) []string {
	r.changes = changesTo(from, to, r.Awaiting(to))
	if r.tells {
		r.fates = r.fatesOf(r.changes, from, to)
	}
	return lines(r.changes)
}

// told returns the lines of the changes, each with what happens to its sessions.
func (r *daemon) told(lines []string) (told []string) {
	for i, line := range lines {
		told = append(told, line+r.fates[i])
	}
	return told
}

func (r *daemon) logRefused(actor string, err error) {
	var bad *badFile
	switch {
	case err == nil, errors.Is(err, rollback.ErrClosed):
		return
	case errors.As(err, &bad):
		logProblems(r.log, bad)
		err = errors.New("the configuration has problems")
	}
	r.log.Error("the reload was refused, nothing was changed", "by", actor, "error", err)
}

// apply puts a configuration into force, with its addresses for the admin API and for metrics.
func (r *daemon) apply(ctx context.Context, cfg *config.Config) error {
	move, scrapes, err := r.prepare(ctx, cfg)
	if err != nil {
		return err
	}
	if err := r.loadBalancer.Apply(ctx, cfg); err != nil {
		return errors.Join(err, move.Abort(), scrapes.Abort())
	}
	r.effect.cfg = cfg
	r.effect.ended, r.effect.restored = r.AppliedLive()
	move.Commit()
	scrapes.Commit()
	r.noteAdmin(cfg)
	r.logAdminFailed()
	select { // drop a configuration that watch has not received: it is outdated
	case <-r.follow:
	default:
	}
	r.follow <- cfg
	return nil
}

// prepare prepares the addresses of a configuration for the admin API and for metrics.
func (r *daemon) prepare(ctx context.Context, cfg *config.Config) (*admin.Move, *scrape.Move, error) {
	move, err := r.prepareAdmin(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("admin: %w", err)
	}
	scrapes, err := r.scrape.Prepare(ctx, scrapeConfig(cfg.Metrics))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("metrics: %w", err), move.Abort())
	}
	return move, scrapes, nil
}

// prepareAdmin prepares the admin address of a configuration. If the address is private and cannot be opened, a process
// without an admin address serves its clients without one. A process with an admin address keeps it, and the reload
// fails: it must not take away the only way to mend the process.
func (r *daemon) prepareAdmin(ctx context.Context, cfg *config.Config) (*admin.Move, error) {
	access := adminAccess(cfg)
	r.adminFailed = nil
	if cfg.Admin == nil || !cfg.Admin.Bind.Auto() || !r.file {
		return r.admin.Prepare(ctx, access)
	}
	bind, err := privateAddress(r.env, r.source.name())
	if access.Bind = bind; access.Group == "" {
		access.Bind += privateMode
	}
	if err == nil {
		var move *admin.Move
		if move, err = r.admin.Prepare(ctx, access); err == nil || r.admin.Addr() != "" {
			return move, err
		}
	}
	r.adminFailed = err
	return r.admin.Prepare(ctx, admin.Access{})
}

// remakeAdmin makes an admin socket that was removed or replaced again after a refused reload: without it an operator could
// not ask the process.
func (r *daemon) remakeAdmin(ctx context.Context) {
	if !r.admin.Gone() {
		return
	}
	at := r.admin.Addr()
	inForce, _ := r.keeper.Current()
	move, err := r.prepareAdmin(ctx, inForce)
	switch {
	case err != nil:
		r.log.Warn("the admin socket was removed or replaced, and cannot be created again", "address", at, "error", err)
	case r.admin.Addr() != at: // a rollback has moved it meanwhile
		_ = move.Abort()
	default:
		move.Commit()
	}
}

const noAdmin = "no admin socket: penstock status, reload and drain cannot reach this process"

// logAdminFailed warns if the private admin socket failed. It is called when the configuration is in force.
func (r *daemon) logAdminFailed() {
	if r.adminFailed != nil {
		r.log.Warn(noAdmin, "error", r.adminFailed, "add", r.adminSetting())
	}
}

// adminSetting is the setting that gives the process an admin socket.
func (r *daemon) adminSetting() string {
	setting := adminFlag
	if r.file {
		setting = adminSection
	}
	return adminFor(adminDirectories(r.env, filepath.Dir), r.source.name(), os.Geteuid(), setting)
}

// noteAdmin writes the note with the admin address, unless it is a private socket, which is found by its name.
func (r *daemon) noteAdmin(cfg *config.Config) {
	if !r.file {
		return
	}
	at := r.admin.Addr()
	if cfg.Admin == nil || cfg.Admin.Bind.Auto() {
		at = ""
	}
	if err := writeNote(r.env, r.source.name(), at); err != nil {
		r.log.Debug("the address of the admin endpoint is not noted", "error", err)
	}
}

func (r *daemon) Confirm(ctx context.Context, number int, actor string) (int, error) {
	return r.keeper.Confirm(ctx, number, actor)
}

func (r *daemon) Generations() rollback.Status { return r.keeper.Status() }

func (r *daemon) logChange(c rollback.Change) {
	attrs := []any{"generation", c.Now}
	if c.By != "" {
		attrs = append(attrs, "by", c.By)
	}
	if c.Event != rollback.Applied && c.Event != rollback.Unchanged { // the reload itself reports these at its end
		select {
		case r.decided <- struct{}{}:
		default:
		}
		defer func() { r.notify(r.notifier.Status(fmt.Sprintf("generation %d of %s", c.Now, r.source.name()))) }()
	}
	switch c.Event {
	case rollback.Applied:
		if p := c.Pending; p != nil {
			attrs = append(attrs, "confirm_until", p.Until, "rollback_if", p.RollbackIf)
		}
		r.noteRead(&c)
		r.log.Info("configuration in force", append(attrs, "changes", summary(r.changes))...)
	case rollback.Unchanged:
		r.noteRead(&c)
		r.log.Info("the configuration is unchanged", attrs...)
	case rollback.Confirmed:
		r.log.Info("configuration confirmed", attrs...)
	case rollback.Unconfirmed:
		r.log.Warn("configuration stays unconfirmed", append(attrs, "cause", c.Why)...)
	case rollback.TakenBack:
		r.measured.takenBack()
		r.takenBack = r.effect
		r.refused.set(r.source.name(), r.inForce, &c, r.effect.cfg)
		r.log.Warn("configuration rolled back", append(attrs, "from", c.Generation, "cause", c.Why)...)
	case rollback.RollbackFailed:
		r.log.Error("rollback failed", append(attrs, "cause", c.Why, "error", c.Err)...)
	}
}

// noteRead notes that the configuration that was read last is in force.
func (r *daemon) noteRead(c *rollback.Change) {
	r.applied, r.inForce = r.effect, r.next
	r.inForce.generation = c.Generation
	r.onDisk.read(r.inForce.cfg, r.inForce.print, metrics.FileSame, nil)
	r.refused.forget()
}

// A readFile is a configuration that was read, with the fingerprint of its files.
type readFile struct {
	cfg        *config.Config
	print      string
	generation int // in which it was in force; 0 if it never was
}

// A refusedFile is the configuration that was rolled back last, as long as the file still has one of its changes. The zero
// value is ready to use, and has none.
type refusedFile struct {
	mu      sync.Mutex
	read    *readFile // nil: none, or the file has none of the changes any more
	to      *config.Config
	changes []string // from to, as [eachChange] returns them
	is      admin.RefusedFile
}

// set notes a rollback to another configuration. read is the file with the configuration that was in force.
func (f *refusedFile) set(path string, read *readFile, c *rollback.Change, to *config.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read, f.to, f.changes = read, to, nil
	if read != nil {
		f.changes = eachChange(to, read.cfg)
	}
	if len(f.changes) == 0 {
		f.read = nil
		return
	}
	f.is = admin.RefusedFile{Path: path, Generation: read.generation, At: time.Now().Truncate(time.Millisecond), By: c.By, Why: c.Why, Automatic: c.By == rollback.Itself}
}

// forget notes that another configuration is in force.
func (f *refusedFile) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read, f.to = nil, nil
}

// eachChange returns the changes from one configuration to another, a line for each key.
func eachChange(from, to *config.Config) (list []string) {
	for _, c := range config.Diff(from, to) {
		keys := c.Keys
		for ; len(keys) > 1; keys = keys[1:] {
			c.Keys = keys[:1]
			list = append(list, c.String())
		}
		c.Keys = keys
		list = append(list, c.String())
	}
	return list
}

// get returns the refused configuration if the source still has one of its changes, or cannot be used, or nil. It reads the
// source only if the metadata of its files has changed.
func (f *refusedFile) get(from source) *admin.RefusedFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read == nil {
		return nil
	}
	if print, err := fingerprint(f.read.cfg, from.name()); err == nil && print != f.read.print {
		now, _, err := from.known()
		if err != nil {
			now = f.read.cfg
		} else if !slices.ContainsFunc(eachChange(f.to, now), func(c string) bool { return slices.Contains(f.changes, c) }) {
			f.read = nil
			return nil
		}
		f.read = &readFile{now, print, f.read.generation}
	}
	is := f.is
	return &is
}

// A fileState says whether the file can be used, how it differs from the configuration in force, and whether the last
// reload was refused. The file is read again if its metadata or the running configuration has changed. While the
// file, or a certificate that it names, cannot be used, it is also read again now and then: the files that it names
// may have changed. The zero value is a file that can be used.
type fileState struct {
	mu      sync.Mutex
	print   string
	beside  *config.Config       // configuration in force when the file was read
	is      metrics.FileState    // how the file differs from it; empty: not known yet
	looked  time.Time            // when the file was read last
	problem string               // "" if there is none
	reload  *admin.RefusedReload // nil if it was not refused
	unread  bool                 // reload was refused because the file could not be used
	waits   bool                 // reload was refused because a generation waits to be confirmed, and no longer counts when none waits
	loads   bool                 // its modules are being loaded to find out whether it can be used
	reads   chan struct{}        // closed when the read under way is over; nil: there is none
}

// stateOf compares a file with the configuration in force. err is the error of reading it.
func stateOf(inForce, read *config.Config, err error) metrics.FileState {
	switch {
	case err != nil:
		return metrics.FileInvalid
	case len(config.Diff(inForce, read)) > 0:
		return metrics.FileDiffers
	}
	return metrics.FileSame
}

// read notes the state of the file, read while inForce was in force. After an error the file cannot be used.
func (f *fileState) read(inForce *config.Config, print string, is metrics.FileState, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beside, f.print, f.is, f.problem = inForce, print, is, fileProblem(err)
}

// state returns the state of the file at the last look; empty: not known yet.
func (f *fileState) state() metrics.FileState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.is
}

func (f *fileState) reloaded(by string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fileProblem(err)
	f.reload, f.waits, f.unread = nil, errors.Is(err, rollback.ErrPending), text != ""
	if err == nil {
		return
	}
	f.reload = &admin.RefusedReload{At: time.Now().Truncate(time.Millisecond), By: by, Error: cmp.Or(text, err.Error())}
}

// get fills in a status. It drops a refused reload once the file has the configuration in force again, or once no
// generation waits to be confirmed if that was the reason. look loads unknown modules on another goroutine; until
// then, and while a file system does not answer, get reports what was known before.
func (f *fileState) get(from source, look func() error, inForce *config.Config, pending bool, s *admin.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits && !pending {
		f.reload, f.waits = nil, false
	}
	again := (f.problem != "" || certificateRefused(s)) && time.Since(f.looked) >= readAgain
	print, err := fingerprint(inForce, from.name())
	if err != nil {
		s.ReloadRefused, s.FileProblem = f.reload, err.Error()
		return
	}
	if f.reads == nil && !f.loads && (print != f.print || inForce != f.beside || again) {
		f.reads = make(chan struct{})
		go f.readAgain(from, look, inForce, print, f.reload)
	}
	if over := f.reads; over != nil {
		f.mu.Unlock()
		select {
		case <-over:
		case <-time.After(mostRead):
		}
		f.mu.Lock()
	}
	s.ReloadRefused, s.FileProblem = f.reload, f.problem
	if f.reload != nil && f.unread && f.problem == "" {
		now := *f.reload
		now.Error = "the file could not be used then, and can be used now: penstock reload"
		s.ReloadRefused = &now
	}
}

// mostRead is how long a status waits for the file to be read.
const mostRead = 2 * time.Second

// readAgain reads the file and the files that it names. print is the fingerprint that the file had before.
func (f *fileState) readAgain(from source, look func() error, inForce *config.Config, print string, refused *admin.RefusedReload) {
	now, unknown, err := from.known()
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.reads)
	f.reads = nil
	f.beside, f.print, f.looked = inForce, print, time.Now()
	if f.loads = len(unknown) > 0; f.loads {
		go f.load(look)
	}
	if !f.loads || err != nil {
		f.is, f.problem = stateOf(inForce, now, err), fileProblem(err)
	}
	if !f.loads && f.is == metrics.FileSame && f.reload == refused { // a newer refusal stays
		f.reload = nil
	}
}

// load starts look, which loads the modules of the file. The next status reads the file again, with known modules.
func (f *fileState) load(look func() error) {
	err := look()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loads = false; err == nil || !errors.Is(err, errBusy) {
		f.print = ""
	}
}

// readAgain is the shortest time between two reads of a file that cannot be used.
const readAgain = 5 * time.Second

// certificateRefused reports whether a certificate was replaced by an unusable one.
func certificateRefused(s *admin.Status) bool {
	refused := func(c admin.Certificate) bool { return c.Refused != "" }
	return slices.ContainsFunc(s.MetricsCertificates, refused) ||
		slices.ContainsFunc(s.Listeners, func(l admin.Listener) bool {
			return l.AuthoritiesRefused != "" || slices.ContainsFunc(l.Certificates, refused)
		}) ||
		slices.ContainsFunc(s.Upstreams, func(u admin.Upstream) bool {
			return u.AuthoritiesRefused != "" || slices.ContainsFunc(u.Certificates, refused)
		})
}

// fileProblem says in one line, without the file's content, that a file cannot be used. It returns "" for any other
// error.
func fileProblem(err error) string {
	bad, ok := errors.AsType[*admin.ConfigError](err)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s has %s: penstock check %[1]s shows them", bad.Path, count(len(bad.Problems), "problem"))
}

// Status implements [admin.Balancer]. It adds the state of the file.
func (r *daemon) Status() admin.Status {
	s := r.loadBalancer.Status()
	s.Refused = r.refused.get(r.source)
	s.MetricsCertificates = admin.CertificatesOf(r.scrape.Pair())
	if r.file {
		s.File = r.source.name()
		inForce, _ := r.keeper.Current()
		r.onDisk.get(r.source, func() error { _, err := r.look(context.Background(), r.source.known); return err }, inForce, r.keeper.Status().Pending != nil, &s)
	}
	return s
}

// Rollback returns to a generation; 0 means the one before. No reload can come between it and its result.
func (r *daemon) Rollback(ctx context.Context, to int, actor string) (done admin.RolledBack, err error) {
	if err := r.take(ctx); err != nil {
		return done, err
	}
	defer func() { <-r.turn }()
	r.tells = true
	now, err := r.keeper.Rollback(ctx, to, actor)
	if done.Generation, done.Changes = now.Generation, now.Changes; err != nil {
		return done, err
	}
	done.Changes = r.told(done.Changes)
	done.Ended, done.Restored = r.takenBack.ended, r.takenBack.restored
	done.Refused = r.refused.get(r.source)
	return done, nil
}
