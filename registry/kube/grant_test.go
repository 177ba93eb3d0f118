package kube

import (
	"testing"
)

func TestGrantCommands(t *testing.T) {
	for _, c := range []struct{ namespace, refusal, want string }{
		{"", `endpointslices.discovery.k8s.io is forbidden: User "jane" cannot list resource "endpointslices"`,
			"kubectl create clusterrole epdns-read --verb=list,watch --resource=endpointslices.discovery.k8s.io,services,nodes --dry-run=client -o yaml | kubectl apply -f - && " +
				"kubectl create clusterrolebinding epdns-read-jane --clusterrole=epdns-read --user=jane"},
		{"shop", `forbidden: User "system:serviceaccount:dns:epdns" cannot list`,
			"kubectl create role epdns-read --verb=list,watch --resource=endpointslices.discovery.k8s.io,services -n shop --dry-run=client -o yaml | kubectl apply -f - && " +
				"kubectl create rolebinding epdns-read-dns:epdns --role=epdns-read --serviceaccount=dns:epdns -n shop"},
		{"", `forbidden: User "o'hara; rm" cannot list`,
			"kubectl create clusterrole epdns-read --verb=list,watch --resource=endpointslices.discovery.k8s.io,services,nodes --dry-run=client -o yaml | kubectl apply -f - && " +
				`kubectl create clusterrolebinding epdns-read-o-hara--rm --clusterrole=epdns-read --user='o'\''hara; rm'`},
		{"", "no",
			"kubectl create clusterrole epdns-read --verb=list,watch --resource=endpointslices.discovery.k8s.io,services,nodes --dry-run=client -o yaml | kubectl apply -f - && " +
				"kubectl create clusterrolebinding epdns-read-USER --clusterrole=epdns-read --user=USER"},
	} {
		f := &feed{kind: endpointSlices, namespace: c.namespace}
		if got := f.grantCommands(c.refusal); got != c.want {
			t.Errorf("%s:\n%s\nexpected\n%s", c.refusal, got, c.want)
		}
	}
}

// How far a read is can be seen, as can what is wrong.
func TestReadIsSeen(t *testing.T) {
	f := &feed{kind: endpointSlices, src: &Source{}}
	f.src.feeds = []*feed{f}
	f.read(256)
	f.read(44)
	if s := f.src.Status(); s[0].Read != 300 {
		t.Errorf("%d have been read, not 300", s[0].Read)
	}
	if what, since := f.src.Trouble(); what != "" || !since.IsZero() {
		t.Errorf("there is trouble: %q since %v", what, since)
	}
	f.lastError = errCut
	if what, _ := f.src.Trouble(); what != "no connection to the API server: "+errCut.Error() {
		t.Errorf("the trouble is %q", what)
	}
}
