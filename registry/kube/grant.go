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
// are used, in the scope of the feed. Where it was not said who that is, they say USER. The role
// may be there already, for somebody else.
func (f *feed) grantCommands(refusal string) string {
	role, binding, in := "clusterrole", "clusterrolebinding", ""
	resources := "endpointslices.discovery.k8s.io,services,nodes"
	if f.namespace != "" { // Nodes are in none
		role, binding, in = "role", "rolebinding", " -n "+f.namespace
		resources = "endpointslices.discovery.k8s.io,services"
	}
	user, who := "USER", "--user=USER"
	if m := forbiddenUser.FindStringSubmatch(refusal); m != nil {
		user, who = m[1], "--user="+shellWord(m[1])
		if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
			user, who = account, "--serviceaccount="+shellWord(account)
		}
	}
	return fmt.Sprintf("kubectl create %s epdns-read --verb=list,watch --resource=%s%s --dry-run=client -o yaml | kubectl apply -f - && kubectl create %s epdns-read-%s --%s=epdns-read %s%s",
		role, resources, in, binding, oddInNames.ReplaceAllString(user, "-"), role, who, in)
}

// oddInNames is what no name of a binding has here.
var oddInNames = regexp.MustCompile(`[^-._:@a-zA-Z0-9]`)

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
