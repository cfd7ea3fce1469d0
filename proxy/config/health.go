package config

import "time"

// A HealthCheck describes the health checks of an upstream's endpoints.
type HealthCheck struct {
	Pos          Pos
	Type         string        `key:"type" default:"tcp" enum:"tcp http" doc:"Kind of check: a connect, and an exchange of send and expect if they are given; or an HTTP request."`
	Port         int           `key:"port" default:"0" range:"0..65535" eg:"8008" doc:"Port that is asked. 0: the endpoint's own."`
	Interval     time.Duration `key:"interval" default:"5s" range:"10ms..24h" doc:"Time between two checks of an endpoint."`
	FastInterval time.Duration `key:"fast_interval" default:"1s" range:"10ms..24h" doc:"The same, while the endpoint is unhealthy, or about to change its state. It is also how soon it is asked again when a client could not connect to it."`
	Timeout      time.Duration `key:"timeout" default:"2s" range:"1ms..1h" doc:"How long a check may take."`
	Jitter       float64       `key:"jitter" default:"0.2" range:"0..1" doc:"Part of the interval by which it varies at random."`
	Rise         int           `key:"rise" default:"2" range:"1..1000" doc:"Checks in a row that must succeed for an endpoint to be healthy again."`
	Fall         int           `key:"fall" default:"3" range:"1..1000" doc:"Checks in a row that must fail for an endpoint to be unhealthy."`
	HTTP         HTTPCheck     `key:"http" doc:"The request of an http check, and its good answers."`
	Send         Secret        `key:"send" default:"" eg:"PING\r\n" doc:"Bytes that a tcp check sends."`
	Expect       Secret        `key:"expect" default:"" eg:"+PONG" doc:"Bytes that the answer to a tcp check contains."`
	TLS          bool          `key:"tls" default:"false" doc:"The check speaks TLS. The certificate is not verified. Not given: false, but true where an http check, or one with send or expect, asks an endpoint that clients are connected to by TLS (tls of the upstream) at its own port."`
	SNI          string        `key:"sni" type:"domain" default:"" eg:"db.example" doc:"Name that a check in TLS asks for. Empty: the one that the upstream's tls asks for at that port; else none."`
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
	Status []int  `key:"status" default:"200" range:"100..599" doc:"Status codes that are good."`
	Body   Secret `key:"body" default:"" eg:"ok" doc:"Bytes that the body of a good answer contains. Empty: any."`
}

// OutlierDetection ejects endpoints that fail real connections.
type OutlierDetection struct {
	Pos                 Pos
	ConsecutiveFailures int           `key:"consecutive_failures" default:"5" range:"0..1000000" doc:"Failures in a row after which an endpoint is left out. 0: it is not by these."`
	FailurePercentage   float64       `key:"failure_percentage" default:"0" range:"0..100" unit:"%" doc:"Part of an endpoint's connections that fail, from which on it is left out. 0: it is not by this."`
	Unanswered          time.Duration `key:"unanswered" default:"3s" range:"0..1h" doc:"How long an endpoint may answer none of the clients that ask it something, though it has always answered, or never, and its peers do; then it is left out until it answers again. 0: it is not by this."`
	AnswerWithin        time.Duration `key:"answer_within" default:"0s" range:"0..1h" eg:"200ms" doc:"How soon an endpoint answers clients that ask it something. One that has, and whose peers do, is left out when half of its answers come later; its clients are left alone. 0: they may take any time."`
	Window              time.Duration `key:"window" default:"30s" range:"100ms..24h" doc:"Time over which the part is taken."`
	MinVolume           int           `key:"min_volume" default:"20" range:"1..1000000000" doc:"Connections within the window that it takes to judge an endpoint by its part."`
	BaseEjectionTime    time.Duration `key:"base_ejection_time" default:"30s" range:"1ms..24h" doc:"How long an endpoint is left out the first time; each further time takes longer."`
	MaxEjectionTime     time.Duration `key:"max_ejection_time" default:"5m" range:"1ms..24h" doc:"How long an endpoint is left out, at most."`
	MaxEjected          float64       `key:"max_ejected" default:"0.5" range:"0..1" doc:"Part of the endpoints that may be left out at once."`
}

// A CircuitBreaker pauses connections to an upstream or endpoint that fails too many of them.
type CircuitBreaker struct {
	Pos               Pos
	FailurePercentage float64       `key:"failure_percentage" default:"60" range:"0..100" unit:"%" doc:"Part of the connections that fail, from which on no more are made. 0: they always are."`
	Window            time.Duration `key:"window" default:"30s" range:"100ms..24h" doc:"Time over which the part is taken."`
	MinVolume         int           `key:"min_volume" default:"20" range:"1..1000000000" doc:"Connections within the window that it takes to judge by their part."`
	Open              time.Duration `key:"open" default:"60s" range:"1ms..24h" doc:"How long no connections are made, unless a check succeeds or an endpoint returns before; then some are, for trial."`
	TrialConnections  int           `key:"trial_connections" default:"5" range:"1..1000000" doc:"Connections that are made for trial; if they succeed all are made again."`
	Connections       int64         `key:"connections" default:"0" range:"0..100000000" doc:"Connections of the upstream at once; beyond it clients wait in the queue or are refused. 0: no limit."`
	Pending           int64         `key:"pending" default:"0" range:"0..100000000" doc:"Connections of the upstream that are being made at once. 0: no limit."`
}
