package builder

import (
	"sync/atomic"

	"airlift/bundle/charts"
	"airlift/bundle/events"
)

// A reporter reports what a build does, and counts what it downloads.
type reporter struct {
	Report
	fetched atomic.Int64 // bytes downloaded in this build, still compressed
}

// present reports content that does not have to be downloaded.
func (r *reporter) present(kind, name, source, from string, size int64, digest, note string) {
	r.Progress.Item(name, size).Done(note)
	r.Events.DownloadFinished(events.DownloadFinished{Kind: kind, Name: name, Source: source, From: from, Size: size, Digest: digest})
}

// warn prints a warning that is not in the result.
func (r *reporter) warn(text string) {
	if r.Events != nil {
		r.Events.Warning(text)
		return
	}
	r.Progress.Printf("warning: %s\n", text)
}

// watchCharts writes events for downloads of charts.
func (r *reporter) watchCharts(c *charts.Client) {
	c.Started = func(d charts.Download) {
		r.Events.DownloadStarted(events.DownloadStarted{Kind: events.Chart, Name: chartName(d), Source: d.Source})
	}
	c.Finished = func(d charts.Download, size int64) {
		r.Events.DownloadFinished(events.DownloadFinished{Kind: events.Chart, Name: chartName(d), Source: d.Source, From: events.Network, Size: size, Digest: d.Digest})
	}
}

// chartName names a chart in events, before its version is known: "ingress-nginx 4.13.2".
func chartName(d charts.Download) string {
	name := d.Name
	if name == "" {
		name = d.Source // a registry's
	}
	return name + " " + d.Wanted
}
