// Package cluster runs a real Kubernetes control plane on loopback, without a container engine:
//
//	etcd  <-  kube-apiserver  <-  kube-controller-manager   writes the EndpointSlices
//	                          <-  kube-scheduler            puts Pods on Nodes
//	                          <-  kwok                      makes Nodes ready and Pods running
//
// The programs are built once from the modules below test/tools and kept in the user's cache
// directory; [Start] then takes some seconds. [CoreDNS], [Kubectl] and [Helm] lie there, too, for tests
// that run them beside a cluster.
//
//	c, err := cluster.Start(ctx, cluster.Options{Nodes: 3})
//	if err != nil { ... }
//	defer c.Stop()
//	// c.Kubeconfig is the administrator's; c.KubeconfigFor("limited") starts without rights.
//
// There are no kubelets: a Pod is running because kwok says so and nothing listens on its
// address. Admission of service accounts is off, so a Pod needs none. What "kubectl port-forward"
// asks a kubelet for, the API server asks kwok, which does it where [Options.Args] give it a
// ClusterPortForward.
//
// Everything a cluster writes is below [Cluster.Dir], one log file for each component. On Linux
// the kernel ends the components when the process that started them dies, however it dies.
//
// Any goroutine may call the methods of a [Cluster].
package cluster
