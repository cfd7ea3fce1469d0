package contestant

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"
)

const (
	haproxySocket   = "stats.sock"
	haproxyFrontend = "bench"
	// haproxyReserve is the number of descriptors for everything except connections and pipes.
	haproxyReserve = 256
	// haproxyPipes is the largest number of pipes. A pipe is in use only while bytes are in it.
	haproxyPipes = 1024
)

// splicing says whether HAProxy splices, and through which pipes.
type splicing int

const (
	copies     splicing = iota
	ownPipes            // pipes of the system's default size, 64 KiB
	largePipes          // pipes of largePipe bytes
)

// largePipe returns the size of large pipes in bytes and as a text: the default of /proc/sys/fs/pipe-max-size. For
// an ordinary user it is smaller, because the user has a quota of 64 MiB of pipes.
func largePipe() (bytes int, text string) {
	if os.Geteuid() != 0 {
		return 256 << 10, "256 KiB"
	}
	return 1 << 20, "1 MiB"
}

// haproxy returns HAProxy with the given number of threads and additional lines for its
// servers.
func haproxy(threads int, splice splicing, lines ...string) *server {
	return &server{
		binary: "haproxy", install: "apt-get install haproxy", file: "haproxy.cfg",
		text: func(_ context.Context, s *Setting, listen string) string {
			return haproxyConfig(s, listen, threads, splice, lines)
		},
		// -db: in the foreground, without a master process.
		args: func(_ *Setting, file string) []string { return []string{"-db", "-f", file} },
		ask:  askHAProxy,
	}
}

// haproxyText is tuned as HAProxy's configuration manual advises.
var haproxyText = template.Must(template.New("haproxy").Parse(`global
    nbthread {{.Threads}}
    # Two descriptors for a connection and for a pipe, within RLIMIT_NOFILE.
    maxconn {{.Connections}}
{{- if .Pipes}}
    maxpipes {{.Pipes}}
{{- end}}
{{- if .PipeSize}}
    # Larger pipes than the system's 64 KiB mean fewer calls of splice(). An
    # ordinary user's quota is 64 MiB of them; root has none.
    tune.pipesize {{.PipeSize}}
{{- end}}
    # Where it is asked for bytes, and for spliced bytes, after a trial.
    stats socket unix@{{.Socket}} mode 600 level user

defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    maxconn {{.Connections}}

listen {{.Frontend}}
    # The queue is as long as the system allows (somaxconn).
    bind {{.Listen}} backlog 65535{{with .Certificate}} ssl crt {{.}}{{end}}
{{- if .Pipes}}
    # The first leaves it to heuristics whether to splice; the others insist,
    # which takes less processor time on bulk.
    option splice-auto
    option splice-request
    option splice-response
{{- end}}

{{- range .Lines}}
    {{.}}
{{- end}}
{{- range $i, $address := .Servers}}
    server upstream{{if $i}}{{$i}}{{end}} {{$address}}
{{- end}}
`))

func haproxyConfig(s *Setting, listen string, threads int, splice splicing, lines []string) string {
	free, pipes, size := max(descriptors()-haproxyReserve, 64), 0, 0
	if splice != copies {
		pipes = min(haproxyPipes, free/8)
	}
	if splice == largePipes {
		size, _ = largePipe()
	}
	return execute(haproxyText, map[string]any{
		"Threads": threads, "Connections": free/2 - pipes, "Pipes": pipes, "PipeSize": size,
		"Socket": haproxySocket, "Frontend": haproxyFrontend, "Listen": listen, "Servers": s.endpoints(),
		"Certificate": s.Certificate, "Lines": lines,
	})
}

func askHAProxy(ctx context.Context, dir string) (*Account, error) {
	stat, err := haproxyCommand(ctx, dir, "show stat")
	if err != nil {
		return nil, err
	}
	a, err := parseStat(stat)
	if err != nil {
		return nil, err
	}
	info, err := haproxyCommand(ctx, dir, "show info")
	if err != nil {
		return nil, err
	}
	if a.Spliced, err = parseSpliced(info); err != nil {
		return nil, err
	}
	a.Copied = a.ClientToEndpoint + a.EndpointToClient - a.Spliced
	return a, nil
}

func haproxyCommand(ctx context.Context, dir, command string) (string, error) {
	// A path of a unix socket must be short, and the path of dir may be long.
	d, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), haproxySocket))
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(c, command+"\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// parseStat reads the frontend's line of "show stat" (HAProxy's management
// guide, 9.1, CSV format).
func parseStat(text string) (*Account, error) {
	rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# "))).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("show stat: %w", err)
	}
	for _, row := range rows {
		if len(rows[0]) != len(row) || row[0] != haproxyFrontend || row[1] != "FRONTEND" {
			continue
		}
		a := new(Account)
		for i, column := range rows[0] {
			into := map[string]*int64{"scur": &a.Active, "bin": &a.ClientToEndpoint, "bout": &a.EndpointToClient}[column]
			if into == nil {
				continue
			}
			if *into, err = strconv.ParseInt(row[i], 10, 64); err != nil {
				return nil, fmt.Errorf("show stat: %s: %w", column, err)
			}
		}
		return a, nil
	}
	return nil, fmt.Errorf("show stat has no frontend %s", haproxyFrontend)
}

// parseSpliced reads the spliced bytes of both directions from "show info".
// Versions up to 2.6 and later ones spell the name differently.
func parseSpliced(text string) (int64, error) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name == "TotalSplicedBytesOut" || name == "TotalSplicdedBytesOut" {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("show info does not say how many bytes were spliced")
}
