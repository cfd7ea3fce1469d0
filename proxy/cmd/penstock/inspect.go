package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/evidence"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/perfevent"
)

type whyCmd struct {
	adminFlags
	Session  string      `arg:"" optional:"" help:"Examine this session: write its client or its id, as penstock sessions lists them."`
	ByID     string      `name:"session" placeholder:"ID" help:"The same, as a flag."`
	Source   string      `placeholder:"ADDRESS" help:"Examine the sessions of clients from an address or a prefix."`
	Endpoint string      `placeholder:"NAME" help:"Examine the sessions to the endpoint with this name or address."`
	Upstream string      `placeholder:"NAME" help:"Examine the sessions to this upstream. @unknown means sessions taken over from a dead process: their upstream is not in the file."`
	Listener string      `placeholder:"NAME" help:"Examine the sessions of this listener. @unknown means sessions taken over from a dead process: their listener is not in the file."`
	For      cli.Timeout `default:"1s" placeholder:"TIME" help:"Watch for this long, up to 1m. With 0, the whole life of each session is judged. (default: ${default})"`
	JSON     bool        `name:"json" help:"Print JSON, with the waits and the kernel's account of each connection."`
}

func (c *whyCmd) Run(e *cli.Env) error {
	q := admin.WhyQuery{Session: cmp.Or(c.Session, c.ByID), Endpoint: absoluteSocket(c.Endpoint), Upstream: c.Upstream, Listener: c.Listener, For: c.For.Duration()}
	chosen := 0
	for _, name := range []string{c.Session, c.ByID, c.Source, c.Endpoint, c.Upstream, c.Listener} {
		if name != "" {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return cli.Usagef("why: name one session, or write at most one of --source, --endpoint, --upstream and --listener")
	case q.For > admin.MaxWhy:
		return cli.Usagef("why: --for: write at most %v", admin.MaxWhy)
	}
	if c.Source != "" {
		var err error
		if q.Source, err = admin.ParseSource(c.Source); err != nil {
			return cli.Usagef("why: --source: %w", err)
		}
	}
	return show(e, c, "why", c.JSON, func(ctx context.Context, client *admin.Client) (admin.Why, error) { return client.Why(ctx, q) }, writeWhy)
}

// whyRows is how many sessions have a row.
const whyRows = 20

// writeWhy writes the verdict on all sessions, the advice, and a row for each session that was kept waiting longest.
func writeWhy(w io.Writer, y *admin.Why) error {
	if y.Count == 0 {
		return say(w, "%s\n", oneLine(cmp.Or(y.Advice, "no client is connected to an endpoint now")))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s: cause of %s of the time, %s\n", display.Text(y.Verdict), percent(y.Shares[y.Verdict]), plural(int64(y.Count), "session", "sessions"))
	if y.Adopted > 0 {
		fmt.Fprintf(&text, "%s adopted from another process: only the time in the lane is known\n", plural(int64(y.Adopted), "of these sessions was", "of these sessions were"))
	}
	if y.Most != nil {
		fmt.Fprintf(&text, "%s: %d of %d sessions, %s of that time\n", display.Text(groupName(y.Most)), y.Most.Limited, y.Most.Sessions, percent(y.Most.Share))
	}
	fmt.Fprintf(&text, "%s\n\n", oneLine(y.Advice))
	var rows [][]string
	for _, name := range y.Kinds() {
		if y.Shares[name] > 0 || y.Verdicts[name] > 0 {
			rows = append(rows, []string{name, percent(y.Shares[name]) + " of the time", "main cause in " + plural(y.Verdicts[name], "session", "sessions")})
		}
	}
	_ = writeTable(&text, rows, "\n") // into memory
	writeWhyEndpoints(&text, y)
	for i := range y.Sessions[:min(len(y.Sessions), whyRows)] {
		one := &y.Sessions[i]
		fmt.Fprintf(&text, "%s -> %s  %s\n    %s\n", display.Text(one.Client), display.Text(admin.Label(one.Name, one.Endpoint)), display.Text(one.Verdict), oneLine(one.Why))
	}
	text.WriteString(andMore(int(y.Count) - min(len(y.Sessions), whyRows)))
	_, err := io.WriteString(w, text.String())
	return err
}

// whyEndpoints is how many endpoints have a row.
const whyEndpoints = 10

// writeWhyEndpoints writes a row for each endpoint, if there are several.
func writeWhyEndpoints(w *strings.Builder, y *admin.Why) {
	if len(y.Endpoints) < 2 || y.Verdict == "idle" {
		return
	}
	rows := [][]string{{"waits for " + y.Verdict + ", by endpoint", "sessions", "of all waits", "of the endpoint's time"}}
	for i := range y.Endpoints[:min(len(y.Endpoints), whyEndpoints)] {
		one := &y.Endpoints[i]
		rows = append(rows, []string{groupName(one), fmt.Sprintf("%d of %d", one.Limited, one.Sessions), percent(one.Share), percent(one.Shares[y.Verdict])})
	}
	_ = writeTable(w, rows, andMore(len(y.Endpoints)-whyEndpoints)+"\n") // into memory
}

// groupName names an endpoint with its upstream, or an upstream.
func groupName(of *admin.EndpointWhy) string {
	if of.Endpoint == "" {
		return "upstream " + of.Upstream
	}
	text := "endpoint " + admin.Label(of.Name, of.Endpoint)
	text += when(of.Upstream != "", " of "+of.Upstream)
	return text
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

type traceCmd struct {
	processFlags
	PID    int         `name:"pid" placeholder:"N" help:"Trace another process with its children, instead of the running penstock."`
	Cgroup string      `placeholder:"DIR" help:"Trace the processes of the cgroup with this directory instead."`
	For    cli.Timeout `default:"10s" placeholder:"TIME" help:"Trace for this long. A signal ends the trace earlier. (default: ${default})"`
	JSON   bool        `name:"json" help:"Print JSON, with the events of each connection."`
}

func (c *traceCmd) Run(e *cli.Env) error {
	if c.For == 0 || c.PID < 0 || c.PID > 0 && c.Cgroup != "" {
		return cli.Usagef("trace: write a --for TIME above 0, and at most one of --pid N and --cgroup DIR (see: penstock trace --help)")
	}
	ctx, stop := untilStopped(e)
	defer stop()
	target, err := c.target(ctx, e)
	if err != nil {
		return failed(e, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attached := func() { time.AfterFunc(c.For.Duration(), cancel) }
	report, err := evidence.Trace(ctx, target, attached)
	if err != nil {
		return failed(e, err)
	}
	return c.write(e.Stdout, report)
}

// untilStopped returns a context that ends at the first signal that stops the program.
func untilStopped(e *cli.Env) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-e.Stops:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (c *traceCmd) target(ctx context.Context, e *cli.Env) (t evidence.Target, err error) {
	t.Cgroup = c.Cgroup
	if c.PID > 0 {
		t.PIDs = []int{c.PID}
	}
	if c.PID > 0 || c.Cgroup != "" {
		return t, nil
	}
	if t.Admin, err = c.client(e, "trace"); err != nil {
		return t, c.elsewhere(e, err)
	}
	status, err := t.Admin.Status(ctx)
	if err != nil {
		return t, fmt.Errorf("%w (write --pid N to trace another process)", c.elsewhere(e, err))
	}
	t.PIDs = []int{status.PID}
	return t, nil
}

func (c *traceCmd) write(w io.Writer, r *evidence.Report) error {
	if !c.JSON {
		return r.WriteText(w)
	}
	return writeJSON(w, r)
}

type profileCmd struct {
	processFlags
	PID    int         `name:"pid" placeholder:"N" help:"Profile another process and its children, of any program, instead of the running penstock."`
	For    cli.Timeout `default:"10s" placeholder:"TIME" help:"Profile for this long, in whole seconds from 1s to 1m. (default: ${default})"`
	Kernel bool        `negatable:"" default:"true" help:"Include the kernel's frames, if perf events are allowed. (default: ${default})"`
	Output string      `short:"o" placeholder:"FILE" help:"Write the profile to this file. (default: standard output)"`
	Format *string     `hidden:""`
}

// Help returns the text below the summary, for kong.
func (*profileCmd) Help() string {
	return `Show the profile in a browser, as a flame graph or otherwise:

    penstock profile --for 10s -o cpu.pprof
    go tool pprof -http=: cpu.pprof`
}

func (c *profileCmd) Run(e *cli.Env) error {
	d := c.For.Duration()
	switch {
	case c.Format != nil:
		return cli.Usagef("profile: --format was removed: go tool pprof -http=: FILE draws the profile")
	case d%time.Second != 0 || d < time.Second || d > admin.MaxProfile*time.Second:
		return cli.Usagef("profile: --for: write whole seconds from 1s to %ds", admin.MaxProfile)
	case c.PID < 0 || c.PID > 0 && !c.Kernel:
		return cli.Usagef("profile: --pid: write the number of a process; --no-kernel works only for the running penstock (see: penstock profile --help)")
	case c.PID > 0:
		ctx, stop := untilStopped(e)
		defer stop()
		data, err := c.withKernel(ctx, e, c.PID)
		if errors.Is(err, fs.ErrNotExist) {
			err = &evidence.NoProcessError{PID: c.PID}
		}
		if err != nil {
			return failed(e, fmt.Errorf("profile: %w", err))
		}
		return c.write(e, data)
	}
	return c.ask(e, "profile", func(ctx context.Context, client *admin.Client) error {
		data, err := c.sample(ctx, e, client)
		if err != nil {
			return err
		}
		return c.write(e, data)
	})
}

func (c *profileCmd) write(e *cli.Env, data []byte) error {
	if c.Output == "" {
		_, err := e.Stdout.Write(data)
		return err
	}
	if err := file.Write(filepath.Clean(c.Output), data, 0o644); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	fmt.Fprintf(e.Stderr, "penstock: written to %s: go tool pprof -http=: %[1]s shows it\n", display.Text(c.Output))
	return nil
}

// samplesPerSecond is how many samples perf events take per second of CPU time: a prime, so that they do not follow
// timers.
const samplesPerSecond = 199

// sample takes the profile of a running penstock: by perf events, with the kernel's frames, or else by the runtime of
// the process. In that case it writes the reason to standard error.
func (c *profileCmd) sample(ctx context.Context, e *cli.Env, client *admin.Client) (data []byte, err error) {
	cause := errors.New("--no-kernel")
	if c.Kernel {
		if data, cause = c.ofRunning(ctx, e, client); cause == nil {
			return data, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	data, err = client.Profile(ctx, int(c.For.Duration()/time.Second))
	if err == nil {
		fmt.Fprintf(e.Stderr, "penstock: the profile has no frames of the kernel (%v): the Go runtime samples only user stacks, where a system call is one frame\n", cause)
	}
	return data, err
}

// ofRunning samples the process that answers, if it runs on this machine.
func (c *profileCmd) ofRunning(ctx context.Context, e *cli.Env, client *admin.Client) ([]byte, error) {
	status, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	if err := isPenstock(status.PID); err != nil {
		return nil, err
	}
	return c.withKernel(ctx, e, status.PID)
}

// errAnother explains a profile without the kernel's frames: the process number belongs to another machine or PID
// namespace, for example behind a forwarded socket.
var errAnother = errors.New("on this machine it is not a penstock")

// isPenstock returns an error unless a process runs this program, in any version.
func isPenstock(pid int) error {
	own, err := buildinfo.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	other, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("process %d is another user's: %w", pid, fs.ErrPermission)
	}
	if err != nil || own.Path != other.Path {
		return fmt.Errorf("process %d: %w", pid, errAnother)
	}
	return nil
}

func (c *profileCmd) withKernel(ctx context.Context, e *cli.Env, pid int) ([]byte, error) {
	p, err := perfevent.Sample(ctx, evidence.WithChildren([]int{pid}), c.For.Duration(), samplesPerSecond)
	if err != nil {
		return nil, err
	}
	if p.Unnamed {
		fmt.Fprintln(e.Stderr, "penstock: the profile has no names of kernel functions: kernel.kptr_restrict hides the names from this user")
	}
	for _, program := range p.Lacking {
		fmt.Fprintf(e.Stderr, "penstock: the profile lacks names of %s\n", program)
	}
	if p.Lost > 0 {
		fmt.Fprintf(e.Stderr, "penstock: %d samples are lost: the command did not get the CPU in time\n", p.Lost)
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return out.Bytes(), nil
}

// doctorCmd reports the capabilities of this host, or of a running process.
type doctorCmd struct {
	processFlags
	Process bool `help:"Check the running process instead of this host: its quotas, limits and fallbacks."`
	JSON    bool `name:"json" help:"Print one JSON object instead of text."`
}

// Validate is called by kong once the flags are read.
func (c *doctorCmd) Validate() error {
	if !c.Process && (c.Config != nil || c.File != nil || c.Admin != nil) {
		return cli.Usagef("doctor: a file, --config and --admin need --process")
	}
	return nil
}

// Run prints the report, and fails if Penstock cannot run here.
func (c *doctorCmd) Run(e *cli.Env) error {
	if c.Process {
		return c.ask(e, "doctor", func(ctx context.Context, client *admin.Client) error {
			report, err := client.Process(ctx)
			if err != nil {
				return err
			}
			return c.write(e, &report)
		})
	}
	report := doctor.Examine(cli.AffordableByDefault)
	report.Checks = append(report.Checks, checkLane())
	return c.write(e, report)
}

func (c *doctorCmd) write(e *cli.Env, report *doctor.Report) error {
	out, err := display.NewWriter(e.Stdout), error(nil)
	if c.JSON {
		form := json.NewEncoder(out)
		form.SetEscapeHTML(false)
		err = form.Encode(report)
	} else {
		err = report.WriteText(out)
	}
	if err == nil && !report.Able {
		err = errors.New("doctor: something that Penstock cannot run without is missing")
	}
	return err
}

// staysCost is what it costs if sessions may not leave user space.
const staysCost = "sessions stay in user space: small messages take about three times as long and twice the CPU, see lane.md"

// checkLane finds out whether sessions could leave user space here. The lane is not part of the library, and so not
// of its doctor.
func checkLane() doctor.Check {
	c := doctor.Check{Name: "lane", State: doctor.OK, Found: "sessions of listeners with lane may leave user space", Mend: []string{}}
	err := lane.Probe()
	if err == nil {
		return c
	}
	c.State, c.Found, c.Cost = doctor.Unknown, err.Error(), "if it is missing, "+staysCost
	var missing *lane.Unavailable
	if errors.As(err, &missing) {
		c.State, c.Found, c.Cost = doctor.Unused, "without "+strings.Join(missing.Missing, ", "), staysCost
		c.Mend = []string{"if a listener needs the lane: run the process with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, on Linux 6.6 or later, x86-64, with BTF"}
	}
	return c
}

// checkRunningLane returns the check lane for a process, or false if no listener wants a lane and there is none.
func checkRunningLane(l *admin.Lane) (c doctor.Check, there bool) {
	if l == nil || !l.Wanted && l.State != admin.LaneOn {
		return c, false
	}
	c = doctor.Check{Name: "lane", State: doctor.OK, Mend: []string{}}
	c.Found = fmt.Sprintf("%s; %d of %s in the lane", l.State, l.Active, plural(l.Most, "session", "sessions"))
	if l.Why != "" {
		c.Found += "; " + l.Why
	}
	switch l.State {
	case admin.LaneOff:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"penstock lane on"}
	case admin.LaneBusy:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"wait until the process that has the lane ends", "bpftool net lists a lane that a process left behind"}
	case admin.LaneUnavailable:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"penstock doctor shows what is missing", "penstock check shows what is wrong with devices and pins"}
	}
	if l.PinsProblem != "" {
		c.State, c.Cost, c.Found = doctor.Degraded, "the death of the process ends the sessions in the lane", c.Found+"; "+l.PinsProblem
		c.Mend = []string{"remove the remaining files in the directory of lane.pins: the process makes them again", "restart the process if the directory itself was removed"}
	}
	return c, true
}
