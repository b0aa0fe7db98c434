// The interface of Go and C to one connection's queue pair. Operations and completions
// are small, contain no Go pointers, and are passed as arrays.

#ifndef REDYKV_QUEUE_H
#define REDYKV_QUEUE_H

#include <rdma/rdma_cma.h>
#include <stdint.h>

enum {
	OP_READ,
	OP_WRITE,
	OP_WRITE_IMM,
	OP_SEND_IMM, // ends a write of several pieces; its payload is their length

	OP_SIGNALED = 1 << 8,
	OP_FENCED = 1 << 9,
	OP_INLINE = 1 << 10,
};

// A work request. local is an address in this process, remote one in the peer's.
struct op {
	uint64_t id, local, remote;
	uint32_t lkey, rkey, length, imm, kind;
};

// A completion. id is the op's, or for a receive the index it was posted with.
struct done {
	uint64_t id;
	uint32_t status, vendor, opcode, length, imm, has_imm;
};

struct queue {
	struct rdma_cm_id *id; // the connection
	struct ibv_pd *pd; // shared with other connections
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint32_t inline_size; // the most bytes of an OP_INLINE
	uint32_t receive_key; // of the memory behind the receives
	uint64_t receive_base;
};

// RECEIVE_SLOT is the memory in bytes behind each posted receive.
#define RECEIVE_SLOT 8

// queue_sends is the most work requests that a send queue of the id's device may
// have beside receives, or 0.
uint32_t queue_sends(struct queue *q, uint32_t receives);

// queue_create creates the queue pair in pd, on an id whose route, or request, is known.
// Returns 0 or an errno, EPROTONOSUPPORT for a device that has no immediates. In
// either case queue_destroy releases what was created.
int queue_create(struct queue *q, uint32_t sends, uint32_t receives);

// queue_destroy releases what queue_create created. The id itself stays.
int queue_destroy(struct queue *q);

// queue_step posts n operations, takes up to most completions and stores their
// number in *taken. Returns 0 or the errno of posting.
int queue_step(struct queue *q, const struct op *ops, int n, struct done *out, int most, int *taken);

// queue_receive posts n receives with the memory from index first on. Returns 0 or an
// errno.
int queue_receive(struct queue *q, uint32_t first, uint32_t n);

// queue_connect and queue_accept begin to connect; an event reports that the
// connection is established. Private data is of the connection manager. They return
// -1 with errno.
int queue_connect(struct queue *q, const void *private_data, uint8_t length);
int queue_accept(struct queue *q);

enum {
	REGISTER_READS = 1,     // for reads of peers as well
	REGISTER_WRITES = 2,    // for their writes
	REGISTER_ON_DEMAND = 4, // if the device can fault pages in, they are not pinned
};

// domain_register registers memory in a protection domain. Returns NULL with errno.
struct ibv_mr *domain_register(struct ibv_pd *pd, void *memory, size_t size, int flags);

// queue_arm asks for an event with the next completion. Returns 0 or an errno.
int queue_arm(struct queue *q);

// queue_event takes the completion channel's next event. Returns 0, EAGAIN, or
// another errno.
int queue_event(struct queue *q);

#endif
