// The same exchanges in C: with MPI's blocking calls, and with the calls that do not block and a wait for each, as
// `anabranch` makes them. Prints "name ns", one exchange each, from rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank;

// The parts of a figure, in rank.rs too. A figure is their median, without the first part.
enum { PARTS = 10 };

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void report(const char *name, double *seconds, long exchanges) {
    qsort(seconds, PARTS, sizeof *seconds, compare);
    if (rank == 0) printf("%s %.1f\n", name, 1e9 * (seconds[PARTS / 2 - 1] + seconds[PARTS / 2]) / 2 / exchanges);
}

static void send(int blocks, void *out, long bytes) {
    MPI_Request request;
    if (blocks) {
        MPI_Send(out, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
        return;
    }
    MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void receive(int blocks, void *in, long bytes) {
    MPI_Request request;
    if (blocks) {
        MPI_Recv(in, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void reduce(int blocks, void *out, void *in, long bytes) {
    MPI_Request request;
    int count = bytes / sizeof(double);
    if (blocks) {
        MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        return;
    }
    MPI_Iallreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void ping_pong(int blocks, void *out, void *in, long bytes) {
    if (rank == 0) {
        send(blocks, out, bytes);
        receive(blocks, in, bytes);
    } else {
        receive(blocks, in, bytes);
        send(blocks, in, bytes);
    }
}

static void swap(void **one, void **other) {
    void *kept = *one;
    *one = *other;
    *other = kept;
}

// Arguments: BYTES ROUNDS
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        fprintf(stderr, "arguments: BYTES ROUNDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long bytes = atol(argv[1]), rounds = atol(argv[2]) / PARTS;
    if (rounds < 1) rounds = 1;
    void *out = malloc(bytes), *in = malloc(bytes);
    memset(out, 1, bytes);
    memset(in, 1, bytes);
    for (int blocks = 0; blocks < 2; blocks++) {
        double seconds[2][PARTS];
        for (int which = 0; which < 2; which++) {
            for (int part = -1; part < PARTS; part++) {
                double begin = MPI_Wtime();
                for (long round = 0; round < rounds; round++) {
                    if (which == 0) ping_pong(blocks, out, in, bytes);
                    else reduce(blocks, out, in, bytes);
                    // Each round sends what the one before has received.
                    swap(&out, &in);
                }
                if (part >= 0) seconds[which][part] = MPI_Wtime() - begin;
            }
        }
        report(blocks ? "ping-pong-blocking" : "ping-pong", seconds[0], 2 * rounds);
        report(blocks ? "all-reduce-blocking" : "all-reduce", seconds[1], rounds);
    }
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
