package config

import "time"

// A HealthCheck describes the health checks of an upstream's endpoints.
type HealthCheck struct {
	Pos          Pos
	Type         string        `key:"type" default:"tcp" enum:"tcp http" doc:"Kind of check: a connect, and an exchange of send and expect if they are given; or an HTTP request."`
	Port         int           `key:"port" default:"0" range:"0..65535" eg:"8008" doc:"Port to check. 0: the endpoint's own."`
	Interval     time.Duration `key:"interval" default:"5s" range:"10ms..24h" doc:"Time between two checks of an endpoint."`
	FastInterval time.Duration `key:"fast_interval" default:"1s" range:"10ms..24h" doc:"The same, while the endpoint is unhealthy or about to change its state; also the least time between two checks that failures of clients' connections cause. Default: 1s, or interval if that is less."`
	Timeout      time.Duration `key:"timeout" default:"2s" range:"1ms..1h" doc:"Longest duration of a check. Default: 2s, or interval if that is less."`
	Jitter       float64       `key:"jitter" default:"0.2" range:"0..1" doc:"Part of the interval by which it varies at random."`
	Rise         int           `key:"rise" default:"2" range:"1..1000" doc:"Checks in a row that must succeed for an endpoint to be healthy again."`
	Fall         int           `key:"fall" default:"3" range:"1..1000" doc:"Checks in a row that must fail for an endpoint to be unhealthy."`
	HTTP         HTTPCheck     `key:"http" doc:"Request of an http check, and the expected answer."`
	Send         Secret        `key:"send" default:"" eg:"PING\r\n" doc:"Bytes that a tcp check sends."`
	Expect       Secret        `key:"expect" default:"" eg:"+PONG" doc:"Bytes that the answer to a tcp check contains."`
	Standby      Secret        `key:"standby" default:"" eg:"role:slave" doc:"Bytes by which an answer other than the expected one is the answer of a healthy standby, that is to serve later: in the answer to a tcp check, or in the status line or the body of an http check's. Such an endpoint gets no clients, and is no problem. Empty: each other answer is one."`
	TLS          bool          `key:"tls" default:"false" doc:"Checks over TLS. The certificate is not verified. Default: false, but true for an http check, or one with send or expect, of the endpoint's own port, if the upstream has tls."`
	SNI          string        `key:"sni" type:"domain" default:"" eg:"db.example" doc:"Server name of a check over TLS. Empty: that of the upstream's tls at the endpoint's own port; else none."`
}

// asks reports whether a check expects an answer, and not just a connection.
func (h *HealthCheck) asks() bool {
	return h.Type == "http" || h.Send.Value != "" || h.Expect.Value != ""
}

// An HTTPCheck describes a request and its good answers.
type HTTPCheck struct {
	Pos    Pos
	Path   string `key:"path" type:"urlpath" default:"/" eg:"/primary" doc:"Path and query that are requested."`
	Host   string `key:"host" default:"" eg:"db.example" doc:"Host header. Empty: the endpoint's address."`
	Status []int  `key:"status" default:"200" range:"100..599" doc:"Expected status codes."`
	Body   Secret `key:"body" default:"" eg:"ok" doc:"Bytes that the body has to contain. Empty: any body."`
}

// OutlierDetection ejects endpoints that fail real connections.
type OutlierDetection struct {
	Pos                 Pos
	ConsecutiveFailures int           `key:"consecutive_failures" default:"5" range:"0..1000000" doc:"Failures in a row that eject an endpoint. 0: no such rule."`
	FailurePercentage   float64       `key:"failure_percentage" default:"0" range:"0..100" unit:"%" doc:"Percentage of failed connections that ejects an endpoint. 0: no such rule."`
	Unanswered          time.Duration `key:"unanswered" default:"3s" range:"0..1h" doc:"Longest time for which an endpoint may answer no client, while its peers answer, and it answered always or never before; then it is ejected until it answers again. 0: no such rule."`
	AnswerWithin        time.Duration `key:"answer_within" default:"0s" range:"0..1h" eg:"200ms" doc:"Expected time to the first byte of an answer. If half of an endpoint's answers come later, though it was in time before and its peers are, it is ejected; its connections stay. 0: no such rule."`
	Window              time.Duration `key:"window" default:"30s" range:"100ms..24h" doc:"Time over which the percentage is taken."`
	MinVolume           int           `key:"min_volume" default:"20" range:"1..1000000000" doc:"Least number of connections within window before failure_percentage applies."`
	BaseEjectionTime    time.Duration `key:"base_ejection_time" default:"30s" range:"1ms..24h" doc:"Duration of an endpoint's first ejection; each further one is longer."`
	MaxEjectionTime     time.Duration `key:"max_ejection_time" default:"5m" range:"1ms..24h" doc:"Longest ejection."`
	MaxEjected          float64       `key:"max_ejected" default:"0.5" range:"0..1" doc:"Part of the endpoints that may be ejected at once."`
}

// A CircuitBreaker pauses connections to an upstream or endpoint that fails too many of them.
type CircuitBreaker struct {
	Pos               Pos
	FailurePercentage float64       `key:"failure_percentage" default:"60" range:"0..100" unit:"%" doc:"Percentage of failed connections that opens the breaker. 0: no such rule."`
	Window            time.Duration `key:"window" default:"30s" range:"100ms..24h" doc:"Time over which the percentage is taken."`
	MinVolume         int           `key:"min_volume" default:"20" range:"1..1000000000" doc:"Least number of connections within window before failure_percentage applies."`
	Open              time.Duration `key:"open" default:"60s" range:"1ms..24h" doc:"How long the breaker stays open, unless a check succeeds or an endpoint returns earlier; then it is half-open."`
	TrialConnections  int           `key:"trial_connections" default:"5" range:"1..1000000" doc:"Trial connections of a half-open breaker; if they succeed, it closes."`
	Connections       int64         `key:"connections" default:"0" range:"0..100000000" doc:"Concurrent connections of the upstream; beyond it clients wait in the queue or are refused. 0: no limit."`
	Pending           int64         `key:"pending" default:"0" range:"0..100000000" doc:"Concurrent connects to the upstream's endpoints. 0: no limit."`
}
