package main

import (
	"bytes"
	"fmt"
	"html"
	"time"
)

// The chart has a row for each way, one below the other on one axis of time, in pixels. Colours
// are of middle lightness, so that they show on a light page and on a dark one.
const (
	chartWidth  = 900
	chartTop    = 34
	chartLeft   = 385 // where time begins
	chartRight  = 880
	rowHeight   = 46
	rowShare    = 30 // height of one half of the requests
	chartGrey   = "#808894"
	chartPoint  = 2 * step // what one point of a line takes together
	chartSpan   = 35 * time.Second
	chartMarks  = 5 * time.Second
	chartBottom = 48
)

var colours = map[server]string{byEpdns: "#3b82f6", byCoreDNS: "#e07b00", byProxy: "#a855f7"}

func chart(results []*result) []byte {
	var b bytes.Buffer
	base := chartTop + len(results)*rowHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" fill="%s">`+"\n",
		chartWidth, base+chartBottom, chartGrey)
	fmt.Fprintln(&b, "<title>Share of requests that go to a pod that is not ready, over the time since it is not</title>")
	fmt.Fprintf(&b, `<text x="%d" y="16">share of requests to the pod that is not ready, 0 to ½</text>`+"\n", chartLeft)
	for at := time.Duration(0); at <= chartSpan; at += chartMarks {
		fmt.Fprintf(&b, `<path d="M%.0f %dV%d" stroke="%s" stroke-opacity="0.3"/>`, chartX(at), chartTop-8, base, chartGrey)
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%.0f</text>`+"\n", chartX(at), base+18, at.Seconds())
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">seconds since the API acknowledged the change</text>`+"\n", chartRight, base+38)
	for i, r := range results {
		y := chartTop + (i+1)*rowHeight - 8
		colour := colours[r.way.server]
		fmt.Fprintf(&b, `<text x="0" y="%d" fill="%s" font-weight="bold">%s</text>`, y-16, colour, html.EscapeString(r.way.name))
		fmt.Fprintf(&b, `<text x="0" y="%d">%s</text>`+"\n", y, lastFailing(r))
		fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="%s" stroke-opacity="0.5"/>`, chartLeft, y, chartRight, chartGrey)
		fmt.Fprintf(&b, `<path d="M%.1f %d%sV%dZ" fill="%s" fill-opacity="0.25"/>`, chartX(0), y, chartLine(r, y), y, colour)
		fmt.Fprintf(&b, `<path d="M%.1f %d%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linejoin="round"/>`+"\n",
			chartX(0), y, chartLine(r, y), colour)
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}

func lastFailing(r *result) string {
	if r.max() == 0 {
		return "no request failed"
	}
	return fmt.Sprintf("last failing request: median %s, max %s", seconds(r.median()), seconds(r.max()))
}

func chartX(at time.Duration) float64 {
	return chartLeft + (chartRight-chartLeft)*at.Seconds()/chartSpan.Seconds()
}

// chartLine goes through the shares, each in the middle of its time, and begins with the first.
func chartLine(r *result, y int) string {
	var b bytes.Buffer
	const n = int(chartPoint / step)
	for i := 0; i+n <= len(r.steps) && time.Duration(i)*step < chartSpan; i += n {
		var c count
		for _, s := range r.steps[i : i+n] {
			c.requests += s.requests
			c.failed += s.failed
		}
		height := float64(y) - 2*rowShare*c.share()
		if i == 0 {
			fmt.Fprintf(&b, "V%.1f", height)
		}
		fmt.Fprintf(&b, "L%.1f %.1f", chartX(time.Duration(i)*step+chartPoint/2), height)
	}
	return b.String()
}
