package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"epdns/registry"
	"epdns/registry/kube"
	"epdns/zones"
)

// This file reads Services as people who use kubectl call them:
//
//	shop/web        in a namespace
//	web             in the one of --namespace, or of the context
//	service/web     the same, as kubectl prints it; svc/web, too

// errNoHome is why a Service's name alone says too little.
var errNoHome = errors.New("its namespace is missing")

// home is the namespace of a Service that is called by its name alone.
func (f *sourceFlags) home(server bool) (string, error) {
	switch {
	case len(f.namespaces) == 1:
		return f.namespaces[0], nil
	case len(f.namespaces) > 1 || f.manifests != "" || server:
		return "", errNoHome
	}
	namespace, err := kube.Config{Kubeconfig: f.kubeconfig, Context: f.context}.Namespace()
	if err != nil {
		return "", errNoHome // what is wrong besides is told when the cluster is read
	}
	return namespace, nil
}

// serviceKinds are how kubectl calls the kind.
var serviceKinds = []string{"service", "services", "svc"}

// service reads what is called a Service, from a running server or else from where the
// flags say.
func (f *sourceFlags) service(text string, server bool) (k registry.Key, err error) {
	name := text
	if kind, rest, ok := strings.Cut(text, "/"); ok {
		_, noHome := f.home(server)
		if !slices.Contains(serviceKinds, kind) || noHome != nil {
			k, err = parseService(text)
			if err == nil && len(f.namespaces) > 0 && !slices.Contains(f.namespaces, k.Namespace) {
				err = fmt.Errorf("%v is in no namespace that --namespace names", k)
			}
			return k, err
		}
		name = rest
	}
	if len(validation.IsDNS1123Label(name)) > 0 {
		return parseService(text)
	}
	if k.Namespace, err = f.home(server); err != nil {
		return k, fmt.Errorf("%q is not NAMESPACE/SERVICE, such as shop/web; --namespace says it, too", text)
	}
	k.Name = name
	return k, nil
}

// isShort says whether a text calls a Service and is no domain name: it has a slash, or
// neither a dot nor what could stand in no Service's name.
func isShort(text string, zone string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return false
	}
	return strings.Contains(text, "/") || len(validation.IsDNS1123Label(text)) == 0 && text != strings.TrimSuffix(zone, ".")
}

// serviceName is the name of a Service in a zone.
func serviceName(k registry.Key, z zones.Zone) string {
	name := k.Name + "." + k.Namespace + "."
	if z.Layout == zones.Kubernetes {
		name += "svc."
	}
	return name + strings.TrimSuffix(z.Name, ".")
}

// serviceOf is the Service that a name is of or would be of, whatever stands before it.
func serviceOf(name string, in []zones.Zone) (k registry.Key, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for _, z := range in {
		rest, within := strings.CutSuffix(name, "."+strings.ToLower(strings.TrimSuffix(z.Name, ".")))
		if within && z.Layout == zones.Kubernetes {
			rest, within = strings.CutSuffix(rest, ".svc")
		}
		labels := strings.Split(rest, ".")
		if n := len(labels); within && n >= 2 {
			return registry.Key{Namespace: labels[n-1], Name: labels[n-2]}, true
		}
	}
	return k, false
}

// mostMeant is how many Services are guessed.
const mostMeant = 3

// meantServices are those that are likely to be meant by one that does not exist: of a name
// like that in its namespace, else of that name in other namespaces, else of a name and a
// namespace like those.
func meantServices(k registry.Key, all []registry.Key) (out []registry.Key) {
	type guess struct {
		registry.Key
		far int
	}
	var guesses []guess
	consider := func(far func(registry.Key) (int, bool)) {
		if len(guesses) > 0 {
			return
		}
		for _, other := range all {
			if d, ok := far(other); ok {
				guesses = append(guesses, guess{other, d})
			}
		}
	}
	consider(func(o registry.Key) (int, bool) {
		d, near := slip(k.Name, o.Name)
		return d, near && o.Namespace == k.Namespace
	})
	consider(func(o registry.Key) (int, bool) { return 0, o.Name == k.Name })
	consider(func(o registry.Key) (int, bool) {
		d, near := slip(k.Name, o.Name)
		e, alike := slip(k.Namespace, o.Namespace)
		return d + e, near && alike
	})
	slices.SortFunc(guesses, func(a, b guess) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return strings.Compare(a.String(), b.String())
	})
	for _, g := range guesses[:min(len(guesses), mostMeant)] {
		out = append(out, g.Key)
	}
	return out
}

// meantServicesText is what to say behind a Service that does not exist.
func meantServicesText(k registry.Key, all []registry.Key) string {
	var names []string
	for _, m := range meantServices(k, all) {
		names = append(names, m.String())
	}
	if len(names) == 0 {
		return ""
	}
	return "; do you mean " + strings.Join(names, " or ") + "?"
}

// servicesOf are the Services that a store has now.
func servicesOf(store *registry.Store) (all []registry.Key) {
	f := store.FollowAll()
	defer f.Close()
	for _, svc := range f.Take() {
		if svc.Exists {
			all = append(all, svc.Key)
		}
	}
	return all
}
