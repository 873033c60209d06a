package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/sandglass-dev/sandglass/sandbox"
	"github.com/sandglass-dev/sandglass/sandbox/leakcheck"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxotel"
	"github.com/sandglass-dev/sandglass/sandbox/sandboxtest"
	"github.com/sandglass-dev/sandglass/sandbox/sweep"
)

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, "prometheus/sandglass.rules.yml")), false, model.UTF8Validation, parser.NewParser(parser.Options{}), nil)
	require.Empty(t, errs)
	require.Len(t, groups.Groups, 1)
	return groups.Groups[0].Rules
}

// exported returns what Prometheus sees of all that an Observer tells: names of series to their labels.
func exported(t *testing.T) (series map[string]map[string]bool) {
	t.Helper()
	series = map[string]map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		registry := prom.NewRegistry()
		reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
		require.NoError(t, err)
		o, err := sandboxotel.New(sandboxotel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		require.NoError(t, err)
		p := sandboxtest.New(sandbox.Capabilities{})
		m, err := sandbox.NewManager(p, sandbox.Config{Fleet: "ci", Observers: []sandbox.Observer{o.Observe}})
		require.NoError(t, err)
		p.Fault(sandbox.OpCreate, sandboxtest.Fault{Err: sandboxtest.Status(429)})
		require.NoError(t, m.WithSandbox(context.Background(), func(context.Context, sandbox.Sandbox) error {
			time.Sleep(2 * time.Minute)
			return nil
		}))
		s, err := sweep.New(sweep.Config{Fleet: "ci", Providers: []sandbox.Provider{p}})
		require.NoError(t, err)
		o.Pass(s.Sweep(context.Background()))
		require.NoError(t, o.Find(context.Background(), p, leakcheck.Unwitnessed()))

		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			names := []string{f.GetName()}
			if f.GetMetric()[0].GetHistogram() != nil {
				names = []string{f.GetName() + "_bucket", f.GetName() + "_count", f.GetName() + "_sum"}
			}
			for _, n := range names {
				series[n] = map[string]bool{"le": strings.HasSuffix(n, "_bucket")}
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						series[n][l.GetName()] = true
					}
				}
			}
		}
	})
	return series
}

func TestTheRulesAskForWhatIsExported(t *testing.T) {
	series := exported(t)
	asked := map[string]bool{}
	for _, r := range rules(t) {
		t.Run(r.Alert, func(t *testing.T) {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
			require.NoError(t, err)
			known := map[string]bool{}
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if s, ok := n.(*parser.VectorSelector); ok {
					require.Contains(t, series, s.Name)
					asked[s.Name] = true
					for _, m := range s.LabelMatchers {
						if m.Name != model.MetricNameLabel {
							assert.True(t, series[s.Name][m.Name], "%s has no label %s", s.Name, m.Name)
						}
					}
					maps.Copy(known, series[s.Name])
				}
				return nil
			})
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if a, ok := n.(*parser.AggregateExpr); ok {
					for _, l := range a.Grouping {
						assert.True(t, known[l], "grouped by %s, which none of its series has", l)
					}
				}
				return nil
			})
			assert.Regexp(t, `^Sandglass[A-Z]`, r.Alert)
			assert.Contains(t, []string{"warning", "critical"}, r.Labels["severity"])
			assert.NotEmpty(t, r.Annotations["summary"])
			assert.NotEmpty(t, r.Annotations["description"])
		})
	}
	// What no rule asks for is there to be looked at.
	for _, name := range []string{
		"sandglass_sandbox_live",
		"sandglass_beat_lateness_seconds_count", "sandglass_beat_lateness_seconds_sum",
		"sandglass_sandbox_end_duration_seconds_count", "sandglass_sandbox_end_duration_seconds_sum",
		"sandglass_operation_duration_seconds_bucket", "sandglass_operation_duration_seconds_sum",
		"sandglass_leakcheck_duration_seconds_bucket", "sandglass_leakcheck_duration_seconds_sum",
		"sandglass_sweep_duration_seconds_bucket", "sandglass_sweep_duration_seconds_count", "sandglass_sweep_duration_seconds_sum",
	} {
		assert.False(t, asked[name], name)
		asked[name] = true
	}
	assert.Equal(t, slices.Sorted(maps.Keys(series)), slices.Sorted(maps.Keys(asked)), "left: exported; right: asked for or listed here")
}

// TestTheRulesFireWhereTheyShould has Prometheus' engine evaluate each rule over two hours of samples, one a minute: "bad" is
// what it is there for, "good" looks much alike and must keep it silent. Both are told at the end.
func TestTheRulesFireWhereTheyShould(t *testing.T) {
	const of = `sandglass_provider="e2b", sandglass_fleet="ci"`
	cases := map[string]struct{ bad, good string }{
		"SandglassLeak": {
			bad:  `sandglass_sandbox_leaks_total{` + of + `, sandglass_source="scope"} 0x115 1x5`,
			good: `sandglass_sandbox_leaks_total{` + of + `, sandglass_source="scope"} 0x60 1x60`,
		},
		"SandglassLeak of a process that was there for a moment": {
			bad:  `sandglass_sandbox_leaks_total{` + of + `, sandglass_source="sweeper"} _x117 1x3`,
			good: `sandglass_sandbox_leaks_total{` + of + `, sandglass_source="sweeper"} _x117 0x3`,
		},
		"SandglassUnverified": {
			bad:  `sandglass_sandbox_unverified{` + of + `} 0x100 2x20`,
			good: `sandglass_sandbox_unverified{` + of + `} 2x100 0x20`,
		},
		"SandglassOldSandbox": {
			bad:  `sandglass_lease_oldest_age_seconds{` + of + `} 0+60x120`,
			good: `sandglass_lease_oldest_age_seconds{` + of + `} 0+30x120`,
		},
		"SandglassBeatsLate": {
			bad:  buckets("sandglass_beat_lateness_seconds_bucket", of, "60", "120"),
			good: buckets("sandglass_beat_lateness_seconds_bucket", of, "0.1", "0.25"),
		},
		"SandglassSlowEnd": {
			bad:  buckets("sandglass_sandbox_end_duration_seconds_bucket", of+`, sandglass_source="scope"`, "120", "180"),
			good: buckets("sandglass_sandbox_end_duration_seconds_bucket", of+`, sandglass_source="sweeper"`, "120", "180"),
		},
		"SandglassKeyRefused": {
			bad:  `sandglass_operation_duration_seconds_count{` + of + `, sandglass_operation="delete", error_type="unauthenticated"} 0x115 1+1x5`,
			good: `sandglass_operation_duration_seconds_count{` + of + `, sandglass_operation="delete", error_type="rate_limited"} 0x115 1+1x5`,
		},
		"SandglassEndsFail": {
			bad: `sandglass_sandbox_deletes_total{` + of + `, sandglass_outcome="left"} 0+1x120
				sandglass_sandbox_deletes_total{` + of + `, sandglass_outcome="gone"} 0+10x120`,
			good: `sandglass_sandbox_deletes_total{` + of + `, sandglass_outcome="left"} 0+1x120
				sandglass_sandbox_deletes_total{` + of + `, sandglass_outcome="gone"} 0+100x120`,
		},
		"SandglassSweepNotDone": {
			bad:  `sandglass_sweep_sandboxes{` + of + `, sandglass_outcome="left"} _x80 3 _x14 3 _x14 3 _x9`,
			good: `sandglass_sweep_sandboxes{` + of + `, sandglass_outcome="kept"} 3x120`,
		},
		"SandglassSweepOverdue": {
			bad:  `sandglass_sweep_last_success_time_seconds{sandglass_fleet="ci"} 1800x31 _x89`,
			good: `sandglass_sweep_last_success_time_seconds{sandglass_fleet="ci"} 1800x31 _x59 5400 _x29`,
		},
		"SandglassNoSweeper": {
			bad:  `up 1x120`,
			good: `sandglass_sweep_last_success_time_seconds{sandglass_fleet="ci"} 1800 _x119`,
		},
		"SandglassAuditNotClean": {
			bad:  `sandglass_leakcheck_duration_seconds_count{sandglass_provider="e2b", sandglass_outcome="blind"} _x117 1x3`,
			good: `sandglass_leakcheck_duration_seconds_count{sandglass_provider="e2b", sandglass_outcome="clean"} _x117 1x3`,
		},
	}
	tried := map[string]bool{}
	for _, r := range rules(t) {
		expr := strings.Join(strings.Fields(r.Expr), " ")
		for name, c := range cases {
			if alert, _, _ := strings.Cut(name, " "); alert != r.Alert {
				continue
			}
			tried[name] = true
			t.Run(name, func(t *testing.T) {
				// It is to hold at the end, and for as long before as the rule waits.
				at := []time.Duration{2 * time.Hour, 2*time.Hour - time.Duration(r.For)}
				run(t, c.bad, fmt.Sprintf("eval instant at %s count(%s) > 0\n  {} 1\n\neval instant at %s count(%[2]s) > 0\n  {} 1\n", at[0], expr, at[1]))
				run(t, c.good, fmt.Sprintf("eval instant at %s count(%s) > 0\n", at[0], expr))
			})
		}
	}
	assert.Len(t, tried, len(cases))
	for _, r := range rules(t) {
		assert.True(t, tried[r.Alert], "%s is tried", r.Alert)
	}
}

// run loads samples and evaluates.
func run(t *testing.T, samples, evals string) {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	for line := range strings.Lines(samples) {
		load.WriteString("  " + strings.TrimSpace(line) + "\n")
	}
	promqltest.RunTest(t, load.String()+"\n"+evals, promqltest.NewTestEngine(t, false, 0, 1e6))
}

// buckets are those of a histogram all of whose observations lie between two bounds.
func buckets(name, labels, under, upper string) string {
	return fmt.Sprintf("%[1]s{%[2]s, le=\"%[3]s\"} 0x120\n%[1]s{%[2]s, le=\"%[4]s\"} 0+10x120\n%[1]s{%[2]s, le=\"+Inf\"} 0+10x120", name, labels, under, upper)
}
