// Package kubetest starts private Kubernetes clusters on loopback, for tests: the real etcd,
// kube-apiserver with RBAC, and kube-scheduler, and a [Node]'s own kubelet, which runs the first
// container of each pod as a process of this machine, without an image, volumes, probes or
// limits. Pods share the host's network at 127.0.0.1.
//
// kube-controller-manager does not run. Of its parts, a test does those it needs itself:
//
//   - node lifecycle: [Node.Lose] stops the kubelet, and [Cluster.NotReady] sets what the node
//     controller would, once the node's lease is old: condition Ready=Unknown and the taints
//     node.kubernetes.io/unreachable;
//   - taint eviction and pod collection: [Cluster.Collect] deletes the pods of a lost node;
//   - StatefulSets and Deployments: nothing makes their pods.
//
// Service accounts get no tokens: the ServiceAccount admission plugin is off, and processes
// use the files of [Cluster.Kubeconfig].
package kubetest
