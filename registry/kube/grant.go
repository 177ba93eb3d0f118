package kube

import (
	"fmt"
	"regexp"
	"strings"
)

// This file says how a right is given that is missing.

// forbiddenUser finds who may not in what the API server says of it.
var forbiddenUser = regexp.MustCompile(`User "([^"]+)"`)

// grantCommands are the lines for kubectl that give the one who was refused all rights that
// are used, in the scope of the feed. Where it was not said who that is, they say USER.
func (f *feed) grantCommands(refusal string) string {
	role, binding, in := "clusterrole", "clusterrolebinding", ""
	resources := "endpointslices.discovery.k8s.io,services,nodes"
	if f.namespace != "" { // Nodes are in none
		role, binding, in = "role", "rolebinding", " -n "+f.namespace
		resources = "endpointslices.discovery.k8s.io,services"
	}
	who := "--user=USER"
	if m := forbiddenUser.FindStringSubmatch(refusal); m != nil {
		who = "--user=" + shellWord(m[1])
		if account, ok := strings.CutPrefix(m[1], "system:serviceaccount:"); ok {
			who = "--serviceaccount=" + shellWord(account)
		}
	}
	return fmt.Sprintf("kubectl create %s epdns-read --verb=list,watch --resource=%s%s && kubectl create %s epdns-read --%s=epdns-read %s%s",
		role, resources, in, binding, role, who, in)
}

// shellWord is a text as a shell takes it for one word.
func shellWord(text string) string {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@=+,", r))
	}
	if text != "" && !strings.ContainsFunc(text, odd) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
