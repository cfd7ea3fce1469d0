package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/sessionlog"
)

// A SessionLog has lines on clients: at their end, and as an option at the beginning of their
// session and while it lasts.
type SessionLog struct {
	Pos        Pos
	To         string        `key:"to" type:"destination" required:"yes" eg:"/var/log/penstock/sessions.log" doc:"Where lines go: the path of a file or FIFO, stderr, journald, syslog+udp://192.0.2.1:514 or syslog+unix:/dev/log (RFC 5424). A file is opened again at SIGUSR1, and when it was moved away."`
	Format     string        `key:"format" default:"json" enum:"json haproxy-tcp template" doc:"json: an object on each line. haproxy-tcp: the line of HAProxy's option tcplog. template: that of the key template."`
	Template   string        `key:"template" default:"" eg:"{time} {client} {upstream}/{endpoint} {reason}" doc:"The line of format: template. {field} stands for a field of the JSON line, - if it has none, and {{ for a brace."`
	At         []string      `key:"at" default:"end" single:"yes" enum:"start end" doc:"start: when a client is joined to an endpoint. end: when it has left, however far it had come."`
	Every      time.Duration `key:"every" default:"0s" range:"0..8760h" eg:"10m" doc:"Time after which a session that goes on has another line; at least 1s. 0: none."`
	Only       string        `key:"only" default:"all" enum:"all failed" doc:"failed: only sessions that did not end by both ends of file, and clients that were not joined."`
	SlowerThan time.Duration `key:"slower_than" default:"0s" range:"0..8760h" eg:"1s" doc:"Only sessions that have lasted so long, and those that have failed. 0: all."`
	Share      float64       `key:"share" default:"100" range:"0..100" unit:"%" eg:"10" doc:"Percentage of the clients that have lines, chosen by their id."`
	PerSecond  int64         `key:"per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"Most lines in a second; others are dropped and counted. 0: no limit."`
}

// setDestination reads the destination of lines.
func setDestination(d *decoder, _ *field, v reflect.Value, text string) *complaint {
	if c := checkLine(text); c != nil {
		return c
	}
	switch text {
	case "":
		return complain("write a path, stderr or journald", "the destination is empty")
	case "stdout", "-":
		return complain("write stderr, or a path", "standard output is for the summary")
	case "syslog":
		return complain("write syslog+unix:/dev/log or syslog+udp://192.0.2.1:514", "syslog needs an address")
	}
	if scheme, _, found := strings.Cut(text, ":"); d != nil && text != "stderr" && text != "journald" && (!found || strings.Contains(scheme, "/")) {
		text = d.src.absolute(text)
	}
	if _, err := sessionlog.ParseDestination(text); err != nil {
		return complain("write a path, stderr, journald, syslog+udp://192.0.2.1:514 or syslog+unix:/dev/log", "%q is no destination: %v", text, err)
	}
	v.SetString(text)
	return nil
}

// sessionLog checks the session log.
func (k *checker) sessionLog(l *SessionLog) {
	if l == nil || k.bad[l] {
		return
	}
	k.logFile(l)
	switch {
	case l.Format != sessionlog.FormatTemplate && l.Template != "":
		k.complainAt(k.at(&l.Template, l), "write format: template, or leave template out", "template is of no use with format: %s", l.Format)
	case l.Format == sessionlog.FormatTemplate && !k.bad[&l.Template]:
		k.template(l)
	}
	if l.Every > 0 && l.Every < time.Second {
		k.complainAt(k.at(&l.Every, l), "write 1s or more", "every is shorter than 1s")
	}
	if len(l.At) == 0 && l.Every == 0 && !k.bad[&l.At] {
		k.complainAt(k.at(&l.At, l), "write at: end", "at is empty, so no client has a line")
	}
	if l.Only == "failed" && l.SlowerThan > 0 {
		k.warnAt(k.at(&l.SlowerThan, l), "leave slower_than out, or only", "slower_than is of no use with only: failed, for failed sessions are logged however long they last")
	}
	if l.Share == 0 {
		k.warnAt(k.at(&l.Share, l), "leave session_log out, or write a share", "share: 0 writes no line")
	}
}

// logFile checks that the file of the log can be there, as directories does with sockets.
func (k *checker) logFile(l *SessionLog) {
	to, err := sessionlog.ParseDestination(l.To)
	path := to.File()
	if err != nil || path == "" {
		return
	}
	if at := k.at(&l.To, l); k.isDir(path) {
		k.complainAt(at, "write the path of a file in it", "%s is a directory", path)
	} else if dir := filepath.Dir(path); !k.isDir(dir) {
		k.warnAt(at, "make it before penstock run, or write another path", "this machine has no directory %s", dir)
	}
}

// template checks a template, and suggests the field that was meant.
func (k *checker) template(l *SessionLog) {
	err := sessionlog.CheckTemplate(l.Template)
	if err == nil {
		return
	}
	fix := "write {client}, {upstream} or another field of docs/session-log.md"
	if _, name, found := strings.Cut(err.Error(), "{"); found {
		if meant := closest(strings.TrimSuffix(name, "}"), sessionlog.Fields()); meant != "" {
			fix = didYouMean(meant)
		}
	}
	if l.Template == "" {
		fix = `write template: "{time} {client} {upstream}/{endpoint} {reason}"`
	}
	k.complainAt(k.at(&l.Template, l), fix, "%v", err)
}
