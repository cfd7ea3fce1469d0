package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
)

// adminFlags select the process that a command connects to.
type adminFlags struct {
	Config      *string `group:"The process to ask:" placeholder:"FILE" help:"Ask the process that runs this configuration, at the admin address in the file. (default: /etc/penstock/penstock.yaml, or else ./penstock.yaml)"`
	accessFlags `group:"The process to ask:"`

	path string // of the configuration that find has read to learn the address
}

// processFlags are the adminFlags of a command that takes no argument except the file.
type processFlags struct {
	File *string `arg:"" optional:"" placeholder:"FILE" help:"Ask the process that runs this configuration file."`
	adminFlags
}

// take uses the file argument as the configuration.
func (f *processFlags) take(command string) error {
	if f.File != nil && f.Config != nil {
		return cli.Usagef("%s: --config %s and %s name two files: write only one of them (see: penstock %[1]s --help)", command, *f.Config, *f.File)
	}
	f.Config = cmp.Or(f.Config, f.File)
	return nil
}

// ask is [adminFlags.ask] after take.
func (f *processFlags) ask(e *cli.Env, command string, ask func(ctx context.Context, c *admin.Client) error) error {
	if err := f.take(command); err != nil {
		return err
	}
	return f.adminFlags.ask(e, command, ask)
}

// client is [adminFlags.client] after take.
func (f *processFlags) client(e *cli.Env, command string) (*admin.Client, error) {
	if err := f.take(command); err != nil {
		return nil, err
	}
	return f.adminFlags.client(e, command)
}

func (f *adminFlags) ask(e *cli.Env, command string, ask func(ctx context.Context, c *admin.Client) error) error {
	client, err := f.client(e, command)
	if err != nil {
		return failed(e, f.elsewhere(e, err))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- ask(ctx, client) }()
	select {
	case err = <-done:
	case <-e.Stops:
		cancel()
		if err = <-done; errors.Is(err, context.Canceled) {
			err = errors.New("interrupted before there was an answer")
		}
	}
	return failed(e, f.elsewhere(e, err))
}

// An asker selects the process that a command asks: adminFlags, or processFlags.
type asker interface {
	ask(e *cli.Env, command string, ask func(ctx context.Context, c *admin.Client) error) error
}

// show asks a process, and prints the answer as JSON or as text.
func show[T any](e *cli.Env, of asker, command string, inJSON bool, ask func(ctx context.Context, c *admin.Client) (T, error), text func(w io.Writer, answer *T) error) error {
	return of.ask(e, command, func(ctx context.Context, c *admin.Client) error {
		answer, err := ask(ctx, c)
		switch {
		case err != nil:
			return err
		case inJSON:
			return writeJSON(e.Stdout, answer)
		}
		return text(e.Stdout, &answer)
	})
}

// change asks a process to make a change, and prints text, followed by "as before" if nothing changed.
func change(e *cli.Env, of asker, command, text string, ask func(ctx context.Context, c *admin.Client) (admin.Changed, error)) error {
	return show(e, of, command, false, ask, func(w io.Writer, done *admin.Changed) error {
		return say(w, "%s\n%s", display.Text(text+when(!done.Changed, ", as before")), unkept(done.Unkept))
	})
}

// elsewhere replaces the error that nothing runs at the configured address by an error that says where to ask.
func (f *adminFlags) elsewhere(e *cli.Env, err error) error {
	if f.path != "" && (errors.Is(err, admin.ErrNotRunning) || errors.Is(err, errAdminOff)) {
		return elsewhere(e.Environment(), f.path, err)
	}
	return err
}

func (f *adminFlags) client(e *cli.Env, command string) (*admin.Client, error) {
	if f.Admin != nil && *f.Admin == "" {
		return nil, cli.Usagef("%s: --admin is empty: write unix:/path, or host:port (see: penstock %[1]s --help)", command)
	}
	bind, as := f.address(e), new(admin.Credentials)
	if bind == "" || f.Config != nil && f.Admin == nil {
		var err error
		if bind, as, err = f.find(e, command); err != nil {
			return nil, err
		}
	}
	if err := f.complete(e, as); err != nil {
		return nil, cli.Usagef("%s: %w (see: penstock %[1]s --help)", command, err)
	}
	client, err := admin.NewClientAs(bind, as)
	if err != nil {
		return nil, cli.Usagef("%s: --admin: %w", command, err)
	}
	return client, nil
}

// find returns the address and the credentials for the process with the configuration. Without a configuration it
// takes the only process with a private socket.
func (f *adminFlags) find(e *cli.Env, command string) (string, *admin.Credentials, error) {
	path, err := configPath(command, f.Config, "--config FILE, or --admin ADDRESS")
	if err != nil {
		list := running(e.Environment())
		if f.Config != nil || len(list) == 0 {
			return "", nil, err
		}
		if len(list) > 1 {
			return "", nil, cli.Usagef("%s: several processes run: write %s", command, adminFlagsOf(list))
		}
		if !strings.HasPrefix(list[0], "unix:") { // a token is sent only to an address that the user names
			return "", nil, cli.Usagef("%s: a process runs: write %s", command, adminFlagsOf(list))
		}
		return list[0], privateCredentials(list[0]), nil
	}
	f.path = path
	if f.Config == nil && !filepath.IsAbs(path) {
		return implicitPlace(e, path)
	}
	section, problems := config.AdminBind(path, e.Environment())
	if bind, err := placeless(e, path, section, problems, fmt.Sprintf("correct %s: penstock check shows its lines", display.Text(path))); bind != "" || err != nil {
		return bind, privateCredentials(bind), err
	}
	if section.Bind.Auto() {
		bind, err := findPrivate(e.Environment(), path)
		return bind, privateCredentials(bind), err
	}
	return section.Bind.String(), ownCredentials(section), nil
}

// implicitPlace is find for a file in the current directory, which another user may have written.
func implicitPlace(e *cli.Env, path string) (string, *admin.Credentials, error) {
	section, problems := config.AdminPlace(path)
	bind, err := placeless(e, path, section, problems, fmt.Sprintf("--config %s, which has its variables read", path))
	switch {
	case bind != "" || err != nil:
		return bind, privateCredentials(bind), err
	case section.Bind.Auto():
		bind, err := findPrivate(e.Environment(), path)
		return bind, privateCredentials(bind), err
	case section.Bind.Address.Network != "unix":
		return "", nil, fmt.Errorf("%s has the TCP address %s, and a command uses that only if you trust the file: write --config %[1]s, or --admin ADDRESS", path, section.Bind)
	}
	return section.Bind.String(), &admin.Credentials{Known: true}, nil
}

// placeless handles a configuration without a readable admin section. It returns the private address of its process,
// which depends only on the path, or an error that lists the processes that run. If there is a section it returns
// neither.
func placeless(e *cli.Env, path string, section *config.Admin, problems []config.Problem, or string) (bind string, err error) {
	switch {
	case len(problems) > 0:
		if bind := privateOf(e.Environment(), path); bind != "" {
			return bind, nil
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return findPrivate(e.Environment(), path)
		}
	case section == nil:
		return "", fmt.Errorf(`%s: %w, so its process has no address to connect to: remove "admin: off"`, display.Text(path), errAdminOff)
	default:
		return "", nil
	}
	err = badConfig(path, problems)
	if bad, ok := errors.AsType[*admin.ConfigError](err); ok {
		instead := "--admin ADDRESS"
		if at := listensElsewhere(searched(e.Environment()), path); at != "" {
			instead = "--admin " + at
		}
		bad.Text += fmt.Sprintf("The admin address is therefore unknown: write %s, or %s\n", display.Text(instead), or)
		if run := others(e.Environment()); run != "" {
			bad.Text += run + "\n"
		}
	}
	return "", err
}

// errAdminOff means that the configuration has no admin endpoint.
var errAdminOff = errors.New("admin is off")

// Settings of an admin socket for messages, with its address.
const (
	adminSection = "admin: {bind: %q}"
	adminFlag    = "--admin %s"
)

// failed prints the details of an error, if it has more than one line.
func failed(e *cli.Env, err error) error {
	text := ""
	if bad, ok := errors.AsType[*admin.ConfigError](err); ok {
		text = bad.Text
	} else if refused, ok := errors.AsType[*admin.Refusal](err); ok {
		text = refused.Details
	}
	switch {
	case err == nil:
		return nil
	case text == "":
		return lineError{err}
	}
	fmt.Fprint(e.Stderr, display.Lines(text))
	return cli.ExitCode(cli.ExitError)
}

// A lineError is an error of one line: it may quote names that a server has answered.
type lineError struct{ error }

func (e lineError) Error() string { return display.Text(e.error.Error()) }

func (e lineError) Unwrap() error { return e.error }

// accessFlags are the address of a process, and the credentials for TCP. Each flag has an environment variable.
type accessFlags struct {
	Admin     *string `placeholder:"ADDR" help:"Ask the process at this admin address: unix:/path, or host:port. Or set PENSTOCK_ADMIN."`
	TokenFile *string `placeholder:"FILE" help:"Authenticate over TCP with the token in this file of one line. Or set PENSTOCK_TOKEN_FILE. (default: the token in the configuration, if it may be read)"`
	CA        *string `name:"ca" placeholder:"FILE" help:"Use TLS, and verify the server with the certificate authorities in this PEM file, or with the authorities of this system if FILE is the word system. Or set PENSTOCK_CA."`
	Cert      *string `placeholder:"FILE" help:"Present this certificate (PEM) over TLS. Or set PENSTOCK_CERT."`
	Key       *string `placeholder:"FILE" help:"Use this private key (PEM) for the certificate. Or set PENSTOCK_KEY."`
}

// address returns the address in a flag or in the environment, or "".
func (f *accessFlags) address(e *cli.Env) string { return given(e, f.Admin, "PENSTOCK_ADMIN") }

// given returns the value of a flag, or else of an environment variable.
func given(e *cli.Env, flag *string, variable string) string {
	if flag != nil {
		return *flag
	}
	value, _ := e.Environment()(variable)
	return value
}

// complete adds the credentials in the flags and the environment to the credentials from a configuration.
func (f *accessFlags) complete(e *cli.Env, as *admin.Credentials) error {
	cert, key := given(e, f.Cert, "PENSTOCK_CERT"), given(e, f.Key, "PENSTOCK_KEY")
	switch {
	case (cert == "") != (key == ""):
		return errors.New("a certificate and its key go together: write --cert FILE --key FILE")
	case cert != "":
		as.Cert, as.Key = cert, key
	}
	if as.CA = given(e, f.CA, "PENSTOCK_CA"); as.CA != "" {
		as.Own = ""
	}
	file := given(e, f.TokenFile, "PENSTOCK_TOKEN_FILE")
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	if as.Token = strings.TrimRight(string(text), "\r\n"); as.Token == "" {
		return fmt.Errorf("--token-file: %s is empty: write a token into it", file)
	}
	return nil
}

// ownCredentials returns the credentials in the configuration of a process, as far as this user may read them.
func ownCredentials(a *config.Admin) *admin.Credentials {
	as := &admin.Credentials{Token: cmp.Or(a.ChangeToken.Value, a.ReadToken.Value)}
	if a.TLS == nil {
		return as
	}
	as.Own = string(a.TLS.Cert)
	if _, err := file.ReadPEM(string(a.TLS.Key)); err == nil {
		as.Cert, as.Key = as.Own, string(a.TLS.Key)
	}
	return as
}

// A process may listen somewhere else than its file says, because the file has changed and is not in force. So each
// process writes its address to a note beside the private sockets. The name of the note depends on the
// configuration's path.

// noteName returns the name of the note for a configuration.
func noteName(path string) string { return strings.TrimSuffix(socketName(path), ".sock") + ".admin" }

// writeNote writes the address of this process to its note; "" removes the note. It also removes notes of processes that
// were killed. Without a private directory it does nothing.
func writeNote(env config.Env, path, address string) error {
	dir, err := privateDirectory(env, serviceDirectory)
	if errors.Is(err, errNoDirectory) {
		return nil
	}
	if err != nil {
		return err
	}
	removeDead(dir)
	name := filepath.Join(dir, noteName(path))
	if socket, unix := strings.CutPrefix(address, "unix:"); unix {
		address = "unix:" + absolute(socket)
	}
	if address != "" {
		return file.Write(name, fmt.Appendf(nil, "%s\n%d\n", address, os.Getpid()), 0o644)
	}
	if _, pid := readNote(name); pid != os.Getpid() { // there is no note, or a successor has written it
		return nil
	}
	return os.Remove(name)
}

// removeDead removes notes of this user's processes that have ended and answer nowhere: a process in another PID namespace
// only seems to have ended.
func removeDead(dir string) {
	for _, note := range matching(dir, "*-????????.admin") {
		at, pid := readNote(note)
		if pid == 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || answers(at) {
			continue
		}
		if info, err := os.Lstat(note); err == nil && own(info) {
			_ = os.Remove(note)
		}
	}
}

// readNote returns the address and the process in a note, or "" without a note.
func readNote(name string) (address string, pid int) {
	text, err := file.Read(name, 4096) // another user may have written it
	if err != nil {
		return "", 0
	}
	address, number, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	pid, err = strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return "", 0
	}
	return address, pid
}

// elsewhere is called if nothing runs at the address in the file. It returns an error that says where the
// configuration's process can be asked, or why it cannot be asked. If there is no such process it returns err.
func elsewhere(env config.Env, path string, err error) error {
	if at := listensElsewhere(searched(env), path); at != "" {
		return fmt.Errorf("%s: the process that runs it has another admin address: write --admin %s", display.Text(path), display.Text(at))
	}
	pid, uid, drains := processOf("/proc", path)
	if pid == 0 {
		return err
	}
	user := fmt.Sprintf("/run/user/%d", uid)
	its := append(adminDirectories(environOf("/proc", pid), filepath.Clean), filepath.Join(user, "penstock"))
	if at := listensElsewhere(its, path); at != "" {
		return fmt.Errorf("%s: process %d runs it under another user or XDG_RUNTIME_DIR: add --admin %s", display.Text(path), pid, display.Text(at))
	}
	if drains {
		return fmt.Errorf("%s: only process %d is left, which drains and accepts no client: start penstock", display.Text(path), pid)
	}
	list := searched(env)
	for _, dir := range append(slices.Clone(list), its...) {
		if at, by := readNote(filepath.Join(dir, noteName(path))); by == pid {
			return fmt.Errorf("%s: process %d runs it, but nothing answers at its admin address %s: if its socket was removed or replaced, kill -HUP %[2]d makes it again", display.Text(path), pid, display.Text(at))
		}
	}
	for i, dir := range list {
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			list[i] += " (which is not a directory)"
		}
	}
	dirs, orExport := strings.Join(list, " or "), ""
	if _, ok := userDirectory(env); !ok && os.Geteuid() != 0 {
		orExport = ". Or stop it, type export XDG_RUNTIME_DIR=DIR, and start it again in this terminal"
	}
	return fmt.Errorf("%s: process %d runs it, but its admin socket is not in %s. If the file has no admin section, add %s. Then run kill -HUP %[2]d (also if the socket was deleted)%[5]s", display.Text(path), pid, display.Text(dirs), display.Text(adminFor([]string{serviceDirectory, user}, path, int(uid), adminSection)), orExport)
}

// environOf returns the environment of a process, or an empty one if this user may not read it.
func environOf(proc string, pid int) config.Env {
	text, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	return func(name string) (string, bool) {
		_, value, found := strings.Cut("\x00"+string(text), "\x00"+name+"=")
		value, _, _ = strings.Cut(value, "\x00")
		return value, found
	}
}

// adminFor returns the setting that gives a process of a user an admin socket: in one of the directories, or else
// beside the configuration. If the directory has the socket of another process, it says so.
func adminFor(dirs []string, path string, uid int, setting string) string {
	taken := ""
	for _, dir := range append(dirs, filepath.Dir(absolute(path))) {
		if !takesSocket(dir, uid) {
			continue
		}
		for _, name := range []string{"admin.sock", socketName(path)} {
			at := filepath.Join(dir, name)
			switch _, err := os.Lstat(at); {
			case errors.Is(err, os.ErrNotExist):
				return fmt.Sprintf(setting, "unix:"+at) + taken
			case err == nil && listens(at):
				taken = fmt.Sprintf(" (another process listens at unix:%s)", at)
			}
		}
	}
	return fmt.Sprintf(setting, "unix:/PATH") + fmt.Sprintf(" with a path in a directory that user %d owns", uid) + taken
}

// takesSocket reports whether a process of a user can make an admin socket in a directory, as far as this user can see.
func takesSocket(dir string, uid int) bool {
	p, err := file.Beside(filepath.Join(dir, "admin.sock"))
	if err != nil {
		return false
	}
	err = errors.Join(p.Fixed(), p.Safe())
	p.Close()
	if uid == os.Geteuid() {
		return err == nil && syscall.Access(dir, accessWrite|accessEnter) == nil
	}
	var info syscall.Stat_t // whether it is safe depends on the user
	return syscall.Stat(dir, &info) == nil && int(info.Uid) == uid
}

// Modes of access(2).
const (
	accessWrite = 2
	accessEnter = 1
)

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// listensElsewhere returns the address that the configuration's process has noted in one of the directories, or "".
func listensElsewhere(dirs []string, path string) string {
	for _, dir := range dirs {
		if socket := filepath.Join(dir, socketName(path)); listens(socket) {
			return "unix:" + socket
		}
		if at := noted(filepath.Join(dir, noteName(path))); at != "" {
			return at
		}
	}
	return ""
}

// noted returns the address in a note, or "" if its process has ended or does not answer there.
func noted(note string) string {
	at, pid := readNote(note)
	if at == "" || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || !answers(at) {
		return ""
	}
	return at
}

// answers reports whether something listens at an admin address, as far as this user can see.
func answers(address string) bool {
	if socket, unix := strings.CutPrefix(address, "unix:"); unix {
		return listens(socket)
	}
	c, err := sockopt.Dial(context.Background(), &net.Dialer{Timeout: time.Second}, "tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// processOf returns another penstock run process that has a configuration, the user of that process, and whether it listens
// nowhere, because it drains and a successor has its admin address, or had. It returns 0 if this user sees none.
func processOf(proc, path string) (pid int, uid uint32, drains bool) {
	path = absolute(path)
	for of := range runs(proc) {
		if !hasConfig(of.cwd, of.args, path) {
			continue
		}
		n, _ := strconv.Atoi(filepath.Base(of.dir))
		if n == os.Getpid() {
			continue
		}
		if info, err := os.Stat(of.dir); err == nil {
			if owner, ok := info.Sys().(*syscall.Stat_t); ok {
				if pid, uid, drains = n, owner.Uid, listensNowhere(of.dir); !drains {
					break
				}
			}
		}
	}
	return pid, uid, drains
}

// listensNowhere reports whether a process has no socket that listens, as far as this user may see its sockets.
func listensNowhere(dir string) bool {
	its := make(map[string]bool)
	fds, _ := filepath.Glob(filepath.Join(dir, "fd", "*"))
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		its[to] = true
	}
	for _, table := range []struct {
		name, listens string // the value in the column of flags or states
		inode         int    // the column
	}{{"unix", "00010000", 6}, {"tcp", "0A", 9}, {"tcp6", "0A", 9}} {
		text, err := os.ReadFile(filepath.Join(dir, "net", table.name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > table.inode && f[3] == table.listens && its["socket:["+f[table.inode]+"]"] {
				return false
			}
		}
	}
	return len(fds) > 0
}

// A runOf is a penstock run process: its directory in proc, its current directory, and its arguments after run.
type runOf struct {
	dir, cwd string
	args     []string
}

// runs yields the penstock run processes that this user can see.
func runs(proc string) iter.Seq[runOf] {
	return func(yield func(runOf) bool) {
		dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
		for _, dir := range dirs {
			line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
			args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
			if err != nil || len(args) < 2 || filepath.Base(args[0]) != programName || args[1] != "run" {
				continue
			}
			cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
			if err == nil && !yield(runOf{dir, cwd, args[2:]}) {
				return
			}
		}
	}
}

// others lists the running processes that have an admin socket, with their configurations and addresses, or returns
// "".
func others(env config.Env) string {
	var list []string
	for _, p := range processes(env) {
		list = append(list, "a"+p.text("listens on"))
	}
	return strings.Join(list, ", ")
}

// A processAt is a running process: its configuration, or "", and its admin address.
type processAt struct{ path, address string }

// processes returns the running processes that have an admin socket.
func processes(env config.Env) (list []processAt) {
	for _, at := range running(env) {
		list = append(list, processAt{configOf("/proc", at), at})
	}
	return list
}

// text is what follows an article: the process with its configuration, what it does, and its address.
func (p processAt) text(does string) string {
	with := when(p.path != "", " with "+p.path)
	return display.Text(fmt.Sprintf(" process%s %s %s", with, does, p.address))
}

// configOf returns the configuration of the process with a private socket, as far as this user can see: the socket's
// name is made from the configuration's path. It returns "" if it does not know.
func configOf(proc, address string) string {
	for of := range runs(proc) {
		for _, arg := range slices.Concat(of.args, defaultConfigs) {
			if path := from(of.cwd, strings.TrimPrefix(arg, "--config=")); socketName(path) == filepath.Base(address) {
				return path
			}
		}
	}
	return ""
}

// from returns the path of a name that is relative to a directory.
func from(cwd, name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	return filepath.Clean(name)
}

// hasConfig reports whether a penstock run process, with this current directory and these arguments, has the
// configuration at a path: an argument names it, or no argument names a file and it is the default.
func hasConfig(cwd string, args []string, path string) bool {
	for _, arg := range args {
		name := from(cwd, strings.TrimPrefix(arg, "--config="))
		if name == path {
			return true
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return false
		}
	}
	paths := make([]string, len(defaultConfigs))
	for i, name := range defaultConfigs {
		paths[i] = from(cwd, name)
	}
	return defaultConfig(paths) == path
}

// If a configuration has no admin address, its process listens at a private unix socket. Commands find the socket by
// the path of the configuration, in the runtime directory of the service, of the user, or of the service unit.

// serviceDirectory is the runtime directory of the service unit. Commands have no environment variable for it, and
// neither has root in a container.
const serviceDirectory = "/run/penstock"

// privateMode is the mode of a private socket that no group may use.
const privateMode = "?mode=0600"

// errNoDirectory says why there is no private socket.
var errNoDirectory = errors.New("neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is the directory of this user")

// privateDirectory returns the directory for this process's private socket, and makes it if necessary. It returns last
// if no environment variable names a directory, and this user owns last or can make it.
func privateDirectory(env config.Env, last string) (string, error) {
	if list, _ := env("RUNTIME_DIRECTORY"); list != "" {
		dir, _, _ := strings.Cut(list, ":") // systemd.exec(5)
		return dir, nil
	}
	dir, ok := userDirectory(env)
	if !ok {
		if err := makeOwn(last); err != nil {
			return "", fmt.Errorf("%w, and %w", errNoDirectory, err)
		}
		return last, nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// makeOwn makes a directory for this user alone, unless this user has it already.
func makeOwn(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !own(info) {
		return fmt.Errorf("%s is not a directory of this user", dir)
	}
	return nil
}

// own reports whether a file belongs to this user.
func own(info os.FileInfo) bool {
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}

// userDirectory returns the directory for this user's private sockets. It rejects a directory of another user, who
// could replace a socket there.
func userDirectory(env config.Env) (dir string, ok bool) {
	runtime, _ := env("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) {
		return "", false
	}
	info, err := os.Stat(runtime)
	if err != nil {
		return "", false
	}
	return filepath.Join(runtime, "penstock"), own(info)
}

// adminDirectories returns the directories for an admin socket of this process. user maps the user's directory of
// private sockets to the directory to take.
func adminDirectories(env config.Env, user func(penstock string) string) (dirs []string) {
	if list, _ := env("RUNTIME_DIRECTORY"); list != "" {
		dirs = strings.Split(list, ":")
	}
	dirs = append(dirs, serviceDirectory)
	if dir, ok := userDirectory(env); ok {
		dirs = append(dirs, user(dir))
	}
	return dirs
}

// searched returns the directories in which commands look for private sockets.
func searched(env config.Env) []string {
	dirs := append(adminDirectories(env, filepath.Clean), otherUnits(serviceDirectory)...)
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// otherUnits returns the runtime directories of further service units, such as /run/penstock-next.
func otherUnits(directory string) []string {
	dirs, _ := filepath.Glob(directory + "-*") // the only error is a wrong pattern
	return dirs
}

// socketName returns the name of the private socket for a configuration: the beginning of the file's name, and a hash
// of its path.
func socketName(path string) string {
	path = absolute(path)
	keep := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return -1
	}
	base := strings.Map(keep, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	sum := sha256.Sum256([]byte(path))
	return fmt.Sprintf("%.20s-%x.sock", base, sum[:4])
}

// privateAddress returns the admin address of a process without one in its configuration.
func privateAddress(env config.Env, path string) (string, error) {
	dir, err := privateDirectory(env, serviceDirectory)
	if err == nil {
		err = ownDirectory(dir)
	}
	if err != nil {
		return "", err
	}
	bind := "unix:" + filepath.Join(dir, socketName(path))
	_, err = admin.ParseAddress(bind)
	return bind, err
}

// privateOf returns the address of the private socket of the configuration's process, or "" if it finds none. The
// file need not exist or be readable. The path may lead by links to the path that the process has.
func privateOf(env config.Env, path string) string {
	for _, dir := range searched(env) {
		for _, name := range pathsOf(path) {
			if socket := filepath.Join(dir, socketName(name)); listens(socket) {
				return "unix:" + socket
			}
		}
	}
	return ""
}

// pathsOf returns a path, and the paths that links lead to: for its directory, for the file, and for both.
func pathsOf(path string) []string {
	list := []string{path}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		list = append(list, filepath.Join(dir, filepath.Base(path)))
	}
	for at := path; len(list) < maxLinks; {
		to, err := os.Readlink(at)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		at = to
		list = append(list, at)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		list = append(list, real)
	}
	return list
}

// maxLinks is how many links of a path are followed, as in the kernel (path_resolution(7)).
const maxLinks = 40

// findPrivate returns the private address of the configuration's process. The error wraps [admin.ErrNotRunning], and
// names the processes that run.
func findPrivate(env config.Env, path string) (string, error) {
	if bind := privateOf(env, path); bind != "" {
		return bind, nil
	}
	_, err := os.Stat(path)
	return "", &notRunningError{path: path, missing: errors.Is(err, os.ErrNotExist), others: processes(env)}
}

// A notRunningError says that no process was found that runs a configuration. It wraps [admin.ErrNotRunning].
type notRunningError struct {
	path    string
	missing bool        // there is no such file
	others  []processAt // the processes that run
}

func (e *notRunningError) Unwrap() error { return admin.ErrNotRunning }

func (e *notRunningError) Error() string { return e.text("listens on") }

// text returns the error. Other processes are named by their configuration, the text does, and their address.
func (e *notRunningError) text(does string) string {
	text := "no process runs " + display.Text(e.path)
	text += when(e.missing, ": there is no such file")
	for _, p := range e.others {
		text += ". Another" + p.text(does)
	}
	return text
}

// running returns the addresses of all processes with a private socket, with a socket that has the usual name, or with a
// note of their address.
func running(env config.Env) (list []string) {
	dirs := searched(env)
	for _, dir := range dirs {
		for _, socket := range append(matching(dir, "*-????????.sock"), filepath.Join(dir, "admin.sock")) {
			if listens(socket) {
				list = append(list, "unix:"+socket)
			}
		}
	}
	for _, dir := range dirs {
		for _, note := range matching(dir, "*-????????.admin") {
			if at := noted(note); at != "" && !slices.Contains(list, at) {
				list = append(list, at)
			}
		}
	}
	return list
}

// matching returns the paths of the files of a directory with a name like the pattern. The directory is no pattern: its
// path may have a [.
func matching(dir, pattern string) []string {
	list, _ := fs.Glob(os.DirFS(dir), pattern) // the only error is a wrong pattern
	for i, name := range list {
		list[i] = filepath.Join(dir, name)
	}
	return list
}

// adminFlagsOf returns the flags for the addresses, or "" without any.
func adminFlagsOf(list []string) string {
	return when(len(list) > 0, "--admin "+strings.Join(list, ", or --admin "))
}

// listens reports whether a process listens at a unix socket, as far as this user can see.
func listens(socket string) bool {
	if _, err := os.Lstat(socket); err != nil { // the socket does not exist, or this user may not look into the directory
		return false
	}
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EAGAIN)
	}
	c.Close()
	return true
}

// errDirectory means that another user could replace a socket in the directory.
var errDirectory = errors.New("not a directory for a private socket")

// ownDirectory returns why this process must not put a private socket into a directory. The directory must belong to
// this user or to root, and no other user may write there.
func ownDirectory(dir string) error {
	return heldBy(dir, uint32(os.Geteuid()))
}

// heldBy returns why a directory does not belong to a user or to root, or that other users may write there.
func heldBy(dir string, uid uint32) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s: %w: it is a link or a file", display.Text(dir), errDirectory)
	case !ok || of.Uid != uid && of.Uid != 0:
		return fmt.Errorf("%s: %w: it belongs to another user", display.Text(dir), errDirectory)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: %w: other users may write there: chmod go-w", display.Text(dir), errDirectory)
	}
	return nil
}

// privateCredentials returns the credentials for a private socket. Its process must belong to root, to this user, or
// to the user to which root has given the directory, as systemd does for a service.
func privateCredentials(bind string) *admin.Credentials {
	as := &admin.Credentials{Known: true}
	dir := filepath.Dir(strings.TrimPrefix(bind, "unix:"))
	info, err := os.Lstat(dir)
	if err != nil || heldBy(filepath.Dir(dir), 0) != nil {
		return as
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && heldBy(dir, of.Uid) == nil {
		as.Owner = of.Uid
	}
	return as
}
