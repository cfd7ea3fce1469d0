package claims

var balancerClaims = []*Claim{
	{
		ID:        "configuration",
		Title:     "A new configuration in force",
		Published: "95.7 % sooner than in 42 s, so in 1.8 s",
		Measures:  "Probably: the time from a change until all proxies follow it. Unknown: the effect on open connections.",
		Source:    recipe,
		Command:   "penstock-bench reload",
		Honest: "42 s and 1.8 s are the times in which a configuration reaches a fleet, and not the speed of a proxy. " +
			"Penstock's figure is the time from SIGHUP, with a file of 1,000 listeners and 10,000 endpoints, until the new configuration serves the first connection. The connections that the reload cut must be none.",
	},
	{
		ID:        "incident-silent",
		Title:     "An incident, endpoints that fall silent",
		Published: "842 → 127 ms in the mean, 3.2 → 0.18 % of requests failed",
		Measures:  "Probably: a part of the endpoints is slow or silent; without protection, and with circuit breakers and ejection. Unknown: the number of endpoints, the duration, the timeouts.",
		Source:    recipe,
		Command:   "penstock-bench incident --failures silent --modes off,on",
		Honest: "The timeouts determine the figures of such an incident: requests fail until the first verdict, so a longer incident has a smaller share. Compare ratios: 6.6 and 17.8. " +
			"Here a third of the endpoints accepts and never answers, for 40 s.",
	},
	{
		ID:        "incident-slow",
		Title:     "An incident, endpoints that slow down",
		Published: "842 → 127 ms in the mean, 3.2 → 0.18 % of requests failed",
		Measures:  "The same figures, with endpoints that answer late instead of never.",
		Source:    recipe,
		Command:   "penstock-bench incident --failures slow --modes off,on",
		Honest: "A slow endpoint is harder to distinguish from a healthy one than a silent one, because some of its answers come in time. " +
			"docs/health.md has the figures of an earlier build, which missed the second ratio, and the reasons.",
	},
}
