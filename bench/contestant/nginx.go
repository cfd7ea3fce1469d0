package contestant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/template"
)

// nginxReserve is the number of a worker's descriptors for everything except connections.
const nginxReserve = 64

// nginx returns nginx with its stream module. With a zone, its workers share the state of the servers. parameters
// are the parameters of each server.
func nginx(zone, parameters string) *server {
	v := &server{
		binary: "nginx", install: "apt-get install nginx-light libnginx-mod-stream", file: "nginx.conf",
		args:     func(_ *Setting, file string) []string { return []string{"-p", filepath.Dir(file), "-c", file} },
		threaded: true, workers: true, // by reuseport
		// At this signal, the master ends its workers. SIGKILL would leave them behind.
		orphan: syscall.SIGTERM,
	}
	v.check = func(ctx context.Context, path string) error { _, err := streamModule(ctx, path); return err }
	v.text = func(ctx context.Context, s *Setting, listen string) string {
		load := ""
		if path, err := v.path(s); err == nil {
			load, _ = streamModule(ctx, path)
		}
		return nginxConfig(s, load, listen, zone, parameters)
	}
	return v
}

// nginxText is tuned as nginx's manual advises.
var nginxText = template.Must(template.New("nginx").Parse(`{{with .Load}}{{.}}
{{end -}}
daemon off;
{{- with .User}}
# The user it is started as, which root would otherwise be exchanged for another.
user {{.}};
{{- end}}
pid nginx.pid;
lock_file nginx.lock;
# A line for each reset would be measured, too.
error_log stderr crit;
# One for each processor.
worker_processes {{.Threads}};
# All the descriptors there are. A session takes two, and counts as two
# connections.
worker_rlimit_nofile {{.Descriptors}};
events {
    worker_connections {{.Connections}};
}
stream {
    access_log off;
    tcp_nodelay on;
{{- if .Servers}}
    upstream endpoints {
{{- with .Zone}}
        zone {{.}} 64k;
{{- end}}
{{- range .Servers}}
        server {{.}}{{$.Parameters}};
{{- end}}
    }
{{- end}}
    server {
        # A queue of connections for each worker spreads them; it is as long as
        # the system allows (somaxconn).
        listen {{.Listen}} reuseport backlog=65535;
        proxy_pass {{.Upstream}};
        proxy_connect_timeout 5s;
        proxy_timeout 1h;
        # Else the end of file of one side ends both.
        proxy_half_close on;
        # proxy_buffer_size is left at 16k. 64k would make it faster on bulk, at
        # four times the memory of every session.
    }
}
`))

func nginxConfig(s *Setting, load, listen, zone, parameters string) string {
	pass := s.Upstream
	if len(s.Endpoints) > 0 {
		pass = "endpoints"
	}
	return execute(nginxText, map[string]any{
		"Load": load, "User": root(), "Threads": s.threads(),
		"Descriptors": descriptors(), "Connections": max(descriptors()-nginxReserve, 64),
		"Listen": listen, "Upstream": pass, "Servers": s.Endpoints, "Zone": zone, "Parameters": parameters,
	})
}

// root returns the name of this process's user if it is root.
func root() string {
	if os.Geteuid() != 0 {
		return ""
	}
	u, err := user.LookupId("0")
	if err != nil {
		return "root"
	}
	return u.Username
}

// modulesPath finds the paths that nginx was built with.
var modulesPath = regexp.MustCompile(`--(modules-path|prefix)=(\S+)`)

// streamModule returns the line that loads the stream module of the nginx at path, or "" if the module is built
// in. It lets nginx test configurations to find that out.
func streamModule(ctx context.Context, path string) (string, error) {
	said, err := probe(ctx, path, "-V")
	if err != nil {
		return "", err
	}
	lines := []string{""}
	for _, m := range modulesPath.FindAllStringSubmatch(string(said), -1) {
		dir := strings.Trim(m[2], "'\"")
		if m[1] == "prefix" {
			dir = filepath.Join(dir, "modules")
		}
		lines = append(lines, fmt.Sprintf("load_module %s;", filepath.Join(dir, "ngx_stream_module.so")))
	}
	dir, err := os.MkdirTemp("", "penstock-nginx-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for _, line := range lines {
		if testNginx(ctx, path, dir, line) == nil {
			return line, nil
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return "", errors.New("nginx has no stream module: apt-get install libnginx-mod-stream")
}

func testNginx(ctx context.Context, path, dir, load string) error {
	file := filepath.Join(dir, "test.conf")
	text := load + "\nerror_log stderr crit;\npid test.pid;\nevents {}\nstream {}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	_, err := probe(ctx, path, "-t", "-p", dir, "-c", file)
	return err
}
