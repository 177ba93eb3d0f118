package main

import (
	"fmt"
	"strconv"
	"time"
)

// This file is how numbers and times read on the status page.

// numberText is a number with its thousands apart.
func numberText(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// rateText is how often something happens.
func rateText(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0/s"
	case perSecond >= 100:
		return numberText(int64(perSecond)) + "/s"
	case perSecond >= 1:
		return strconv.FormatFloat(perSecond, 'f', 1, 64) + "/s"
	case perSecond*60 >= 1:
		return strconv.FormatFloat(perSecond*60, 'f', 0, 64) + "/min"
	}
	return strconv.FormatFloat(perSecond*3600, 'f', 0, 64) + "/h"
}

// sinceText is how long ago something was, seen from now.
func sinceText(now time.Time, at *time.Time) string {
	if at == nil {
		return "never"
	}
	if d := now.Sub(*at); d >= 2*time.Second {
		return durationText(d) + " ago"
	}
	return "now"
}

func spanText(seconds float64) string {
	return durationText(time.Duration(seconds * float64(time.Second)))
}

// secondsText is a short time.
func secondsText(seconds float64) string {
	switch {
	case seconds >= 1:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds >= 0.001:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g µs", seconds*1e6)
}

func shareText(of float64) string {
	switch {
	case of >= 0.1:
		return fmt.Sprintf("%.0f %%", of*100)
	case of >= 0.001:
		return fmt.Sprintf("%.1f %%", of*100)
	}
	return "< 0.1 %"
}

// placeName is what tells where an asker is, for people.
func placeName(place string) string {
	if name, ok := placeNames[place]; ok {
		return name
	}
	return place
}

var placeNames = map[string]string{
	"unknown": "not known", "neutral": "a shared cache: all", "ecs": "Client Subnet", "endpoints": "endpoints",
	"nodes": "Nodes", "podCIDRs": "podCIDRs", "places": "configuration",
}

// conditionTone is how good the conditions of an endpoint are.
func conditionTone(conditions string) string {
	switch conditions {
	case "ready":
		return "good"
	case "not-ready", "not-ready,terminating":
		return "bad"
	}
	return "fair"
}
